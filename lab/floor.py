"""`task bench:floor`: what the machine allows at all, in the units and by the run of the comparison.

no tunnel                 iperf3 over the wire itself
a tunnel that only copies TUN -> UDP_SEGMENT -> UDP_GRO -> TUN, nothing else (native/tests/bench/floor_tunnel.c)
a tunnel that only seals  the same with every chunk sealed and opened by the engine's cipher
fv                        beside them, interleaved, so that the distance is of the same minutes
"""

import argparse

from lab import impls

NAMES = "none,copying,sealing,fv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    impls.add_arguments(parser)
    parser.set_defaults(impls=NAMES, cells="tcp1,tcp8,rtt", topologies="local,lan-plain")


def run(args: argparse.Namespace) -> int:
    return impls.run_bench("floor", impls.in_set(args, "main"))
