// The sealing and opening that wireguard-go does for a packet: its cipher (golang.org/x/crypto), its header, its replay
// filter. Its handshake, queues and timers cannot be had without its device, so this is less than all it does per packet.
// Options and output as those of fv's native/tests/bench/bench_transport.c.
//
//	bench-wireguard-go [--size N] [--ms N] [--warmup-ms N] [--samples N]
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"runtime"
	"sort"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/replay"
)

const (
	ring   = 256
	slot   = 9216
	header = 16
)

func nowNs() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return uint64(t.Nano())
}

func show(what string, size int, values []float64) {
	sort.Float64s(values)
	n, tenth := len(values), len(values)/10
	fmt.Printf("{\"what\":%q,\"impl\":\"x/crypto\",\"size\":%d,\"batch\":1,\"ns\":%.1f,\"ns_low\":%.1f,\"ns_high\":%.1f,\"samples\":%d}\n",
		what, size, values[n/2], values[tenth], values[n-1-tenth], n)
}

func main() {
	only := flag.Int("size", 0, "one size")
	ms := flag.Uint64("ms", 30, "of a sample, each direction")
	warmupMs := flag.Uint64("warmup-ms", 1000, "before the samples")
	samples := flag.Int("samples", 100, "of each size")
	flag.Parse()
	runtime.LockOSThread() // the clock is the thread's
	aead, err := chacha20poly1305.New(make([]byte, 32))
	if err != nil {
		panic(err)
	}
	plain, sealed := make([]byte, ring*slot), make([]byte, ring*slot)
	var filter replay.Filter
	var counter uint64
	var nonce [12]byte
	turn := func(size int, out, in *uint64) {
		padded := (size + 15) &^ 15
		if padded > 8920 {
			padded = 8920
		}
		start := nowNs()
		for i := 0; i < ring; i++ {
			message := sealed[i*slot : i*slot+header]
			binary.LittleEndian.PutUint32(message, 4)
			binary.LittleEndian.PutUint32(message[4:], 7)
			binary.LittleEndian.PutUint64(message[8:], counter)
			binary.LittleEndian.PutUint64(nonce[4:], counter)
			aead.Seal(message, nonce[:], plain[i*slot:i*slot+padded], nil)
			counter++
		}
		middle := nowNs()
		for i := 0; i < ring; i++ {
			message := sealed[i*slot : i*slot+header+padded+16]
			number := binary.LittleEndian.Uint64(message[8:])
			binary.LittleEndian.PutUint64(nonce[4:], number)
			if _, err := aead.Open(message[header:header], nonce[:], message[header:], nil); err != nil {
				panic(err)
			}
			if !filter.ValidateCounter(number, ^uint64(0)-(1<<13)-1) {
				panic("outside the window")
			}
		}
		*out += middle - start
		*in += nowNs() - middle
	}
	for _, size := range []int{64, 128, 256, 512, 1024, 1420, 2048, 4096, 8920} {
		if *only != 0 && size != *only {
			continue
		}
		var out, in uint64
		for out+in < *warmupMs*1000000 {
			turn(size, &out, &in)
		}
		var outs, ins []float64
		for s := 0; s < *samples; s++ {
			turns := uint64(0)
			out, in = 0, 0
			for out < *ms*1000000 || in < *ms*1000000 {
				turn(size, &out, &in)
				turns++
			}
			outs = append(outs, float64(out)/float64(turns*ring))
			ins = append(ins, float64(in)/float64(turns*ring))
		}
		show("encapsulate", size, outs)
		show("decapsulate", size, ins)
	}
}
