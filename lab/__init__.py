"""The lab: fv beside other implementations, in namespaces and in guests; the log of every run; the report.

    python -m lab peers       builds the pinned peers
    python -m lab impls       compares the implementations        (task test:impls)
    python -m lab qemu        the same inside guests, with the kernel's module
    python -m lab crypto      sealing and opening alone           (task bench:crypto)
    python -m lab floor       what the machine allows at all      (task bench:floor)
    python -m lab multihop    what a second and a third hop cost  (task test:multihop)
    python -m lab report      the log as tables and charts        (task bench:report)

The way of a figure:

    implementations.py (who) + topology.py (where) + cells.py (what)
        -> impls.py (interleaved runs) -> log.py (results.csv) -> report.py, charts.py (docs/benchmarks/)

Everything that runs inside a guest (all but peers, qemu, report and charts) needs the standard library and
pyroute2 only, so that the same code measures on the host and in a guest of another architecture.
"""
