"""What the engine will hold at most: memory and descriptors, from the plan alone.

The sizes are the engine's own, rounded up; `tests/test_cli_engine.py` holds the engine to them.
"""

import msgspec

from fv.plan.text import Plan

BASE = 3 << 20  # code that is in use, stack, loop, log ring
SESSIONS = 32  # connections to the control and configuration sockets (native/engine/session.h)
SESSION = 24 << 10
WORKER = 512 << 10  # stack in use, message headers, iovecs, joining
PEER = 1 << 10  # an idle peer, its part of the trie included
HANDSHAKE = 1 << 10  # key pairs and a handshake under way, for a peer that talks
NAT_ENTRY = 128  # a session, its mapping and its part of the hash tables (native/flow/nat.h)


class Ceiling(msgspec.Struct, frozen=True):
    what: str
    bytes: int = 0
    descriptors: int = 0
    how: str = ""


def ceilings(plan: Plan) -> tuple[Ceiling, ...]:
    engine = next(iter(plan.of("engine")), None)
    workers = int(engine.get("workers")) if engine else 1
    memory = int(engine.get("memory")) if engine else 0
    out = [
        Ceiling("engine", BASE, 8, "program, log ring; standard streams, control socket, signals, netlink, a reserve"),
        Ceiling("sessions", SESSIONS * SESSION, SESSIONS, f"{SESSIONS} connections to its sockets x 24 KiB"),
        Ceiling("workers", workers * WORKER, workers * 3, f"{workers} x 512 KiB; epoll, timer, wake-up each"),
        Ceiling("leases", memory, 0, "memory in [engine]: every buffer under one budget"),
    ]
    for device in plan.of("wireguard"):
        peers = len(device.all("public_key"))
        tun = workers if device.get("tun") == "true" else 0
        sockets = 0 if device.get("detour") else 2 * workers
        how = f"{peers} peers x 2 KiB; {tun} TUN queues, {sockets} UDP sockets, its configuration socket"
        out.append(Ceiling(f"wireguard {device.name}", peers * (PEER + HANDSHAKE), tun + sockets + 2, how))
    for nat in plan.of("nat"):
        entries = int(nat.get("entries"))
        out.append(Ceiling(f"nat {nat.name}", entries * NAT_ENTRY, 0, f"{entries} entries x {NAT_ENTRY} bytes"))
    total = sum(item.bytes for item in out)
    return (*out, Ceiling("total", total, sum(item.descriptors for item in out)))
