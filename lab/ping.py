"""Round trips through a tunnel, one every so many milliseconds, as JSON on stdout: {"sent": n, "us": [...]}.

    python ping.py ADDRESS --every 0.02 --seconds 3      samples for that long
    python ping.py ADDRESS --until-answer 10             waits for one answer

Run as a file, so that it starts quickly and needs nothing. The kernel stamps what arrives (SO_TIMESTAMPNS), so
that the time this program waits for a CPU under load is not counted as the tunnel's.
"""

import argparse
import json
import select
import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
ECHO_REQUEST, ECHO_REPLY = 8, 0  # RFC 792


def checksum(data: bytes) -> int:
    """RFC 1071, over an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request(identity: int, sequence: int) -> bytes:
    body = bytes(48)  # 64 bytes with the header and a timestamp's room, as ping(8) sends
    head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, identity, sequence)
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, checksum(head + body), identity, sequence) + body


class Pinger:
    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.connect((address, 0))
        self.identity = time.monotonic_ns() & 0xFFFF
        self.sent_at: dict[int, int] = {}
        self.sequence = 0
        self.round_trips: list[float] = []

    def send(self) -> None:
        self.sequence = (self.sequence + 1) & 0xFFFF
        packet = request(self.identity, self.sequence)
        self.sent_at[self.sequence] = time.clock_gettime_ns(time.CLOCK_REALTIME)
        try:
            self.socket.send(packet)
        except OSError:  # no route or no key yet: counted as sent and not answered
            self.sent_at.pop(self.sequence)

    def receive(self, seconds: float) -> bool:
        """Takes what arrives within this time; true when an answer to one of ours came."""
        answered = False
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return answered
            data, ancillary, _, _ = self.socket.recvmsg(256, 64)
            header = (data[0] & 15) * 4
            kind, _, _, identity, sequence = struct.unpack_from("!BBHHH", data, header)
            if kind != ECHO_REPLY or identity != self.identity or sequence not in self.sent_at:
                continue
            arrived = time.clock_gettime_ns(time.CLOCK_REALTIME)
            for level, name, value in ancillary:
                if level == socket.SOL_SOCKET and name == SO_TIMESTAMPNS and len(value) >= 2 * struct.calcsize("l"):
                    seconds_part, nanoseconds = struct.unpack_from("ll", value)
                    arrived = seconds_part * 1_000_000_000 + nanoseconds
            self.round_trips.append((arrived - self.sent_at.pop(sequence)) / 1000)
            answered = True


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--every", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--until-answer", type=float)
    args = parser.parse_args(argv)
    pinger = Pinger(args.address)
    started = time.monotonic()
    sent = 0
    if args.until_answer is not None:
        while time.monotonic() - started < args.until_answer:
            pinger.send()
            sent += 1
            if pinger.receive(0.05):
                break
    else:
        while (due := started + sent * args.every) < started + args.seconds:
            pinger.receive(max(0.0, due - time.monotonic()))
            pinger.send()
            sent += 1
        pinger.receive(1.0)
    json.dump({"sent": sent, "us": [round(us, 1) for us in pinger.round_trips]}, sys.stdout)
    return 0 if pinger.round_trips else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
