//! boringtun's encapsulate and decapsulate with no socket and no TUN: the same work, options and output as fv's
//! native/tests/bench/bench_transport.c, one packet at a time, which is all that its interface has.
//!
//!     bench-boringtun [--size N] [--ms N] [--warmup-ms N] [--samples N] [--packets N]

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};

const RING: usize = 256;
const SLOT: usize = 9216;
const SIZES: [usize; 9] = [64, 128, 256, 512, 1024, 1420, 2048, 4096, 8920];

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const CLOCK_THREAD_CPUTIME_ID: i32 = 3;

fn now_ns() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

struct Bench {
    a: Tunn,
    b: Tunn,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    lengths: [usize; RING],
    opened: Vec<u8>,
}

fn sent(result: TunnResult) -> Vec<u8> {
    match result {
        TunnResult::WriteToNetwork(message) => message.to_vec(),
        other => panic!("nothing to send: {other:?}"),
    }
}

impl Bench {
    fn new() -> Bench {
        let (secret_a, secret_b) = (StaticSecret::from([1u8; 32]), StaticSecret::from([2u8; 32]));
        let (public_a, public_b) = (PublicKey::from(&secret_a), PublicKey::from(&secret_b));
        let mut a = Tunn::new(secret_a, public_b, None, None, 1, None);
        let mut b = Tunn::new(secret_b, public_a, None, None, 2, None);
        let mut buffer = vec![0u8; SLOT];
        let initiation = sent(a.format_handshake_initiation(&mut buffer, false));
        let response = sent(b.decapsulate(None, &initiation, &mut buffer));
        let keepalive = sent(a.decapsulate(None, &response, &mut buffer));
        assert!(matches!(b.decapsulate(None, &keepalive, &mut buffer), TunnResult::Done));
        Bench {
            a,
            b,
            plain: vec![0u8; RING * SLOT],
            sealed: vec![0u8; RING * SLOT],
            lengths: [0; RING],
            opened: vec![0u8; SLOT],
        }
    }

    fn set_size(&mut self, size: usize) {
        for packet in self.plain.chunks_mut(SLOT) {
            packet.fill(0);
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
            packet[12..20].copy_from_slice(&[10, 7, 0, 1, 10, 7, 0, 2]);
        }
    }

    fn encapsulate(&mut self, index: usize, size: usize) {
        let at = index * SLOT;
        match self.a.encapsulate(&self.plain[at..at + size], &mut self.sealed[at..at + SLOT]) {
            TunnResult::WriteToNetwork(message) => self.lengths[index] = message.len(),
            other => panic!("not encapsulated: {other:?}"),
        }
    }

    fn decapsulate(&mut self, index: usize, size: usize) {
        let at = index * SLOT;
        match self.b.decapsulate(None, &self.sealed[at..at + self.lengths[index]], &mut self.opened) {
            TunnResult::WriteToTunnelV4(packet, _) => assert_eq!(packet.len(), size),
            other => panic!("not decapsulated: {other:?}"),
        }
    }

    fn turn(&mut self, size: usize, out: &mut u64, into: &mut u64) {
        let start = now_ns();
        (0..RING).for_each(|index| self.encapsulate(index, size));
        let middle = now_ns();
        (0..RING).for_each(|index| self.decapsulate(index, size));
        *out += middle - start;
        *into += now_ns() - middle;
    }
}

fn print(what: &str, size: usize, values: &mut [f64]) {
    values.sort_by(f64::total_cmp);
    let (n, tenth) = (values.len(), values.len() / 10);
    println!(
        "{{\"what\":\"{what}\",\"impl\":\"boringtun\",\"size\":{size},\"batch\":1,\"ns\":{:.1},\"ns_low\":{:.1},\
         \"ns_high\":{:.1},\"samples\":{n}}}",
        values[n / 2],
        values[tenth],
        values[n - 1 - tenth]
    );
}

fn main() {
    let (mut only, mut ms, mut warmup_ms, mut samples, mut packets) = (0u64, 30u64, 1000u64, 100u64, 0u64);
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        let value = pair.get(1).and_then(|text| text.parse().ok()).expect("an option has a number");
        match pair[0].as_str() {
            "--size" => only = value,
            "--ms" => ms = value,
            "--warmup-ms" => warmup_ms = value,
            "--samples" => samples = value,
            "--packets" => packets = value,
            other => panic!("unknown option {other}"),
        }
    }
    let mut bench = Bench::new();
    for size in SIZES.into_iter().filter(|size| only == 0 || *size as u64 == only) {
        bench.set_size(size);
        if packets > 0 {
            for done in 0..packets as usize {
                bench.encapsulate(done % RING, size);
                bench.decapsulate(done % RING, size);
            }
            continue;
        }
        let (mut out, mut into) = (0, 0);
        while out + into < warmup_ms * 1_000_000 {
            bench.turn(size, &mut out, &mut into);
        }
        let (mut outs, mut ins) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            let mut turns = 0u64;
            (out, into) = (0, 0);
            while out.min(into) < ms * 1_000_000 {
                bench.turn(size, &mut out, &mut into);
                turns += 1;
            }
            outs.push(out as f64 / (turns * RING as u64) as f64);
            ins.push(into as f64 / (turns * RING as u64) as f64);
        }
        print("encapsulate", size, &mut outs);
        print("decapsulate", size, &mut ins);
    }
}
