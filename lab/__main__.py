"""`python -m lab JOB`: a job is a module with `add_arguments(parser)` and `run(args) -> exit status`."""

import argparse
import importlib
import sys

from lab.errors import LabError

JOBS = {
    "peers": "build the pinned peers (wireguard-go, boringtun, GotaTun) into the cache",
    "impls": "compare the implementations in namespaces of this machine",
    "qemu": "compare the implementations, the kernel's module too, in guests",
    "crypto": "sealing and opening with no socket and no TUN",
    "floor": "what the machine allows with no tunnel, and with copying or sealing alone",
    "multihop": "what nested tunnels cost, hop by hop",
    "report": "make docs/benchmarks/README.md and its charts from the log",
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab", description="fv's lab")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    wanted = argv[0] if argv and argv[0] in JOBS else None
    modules = {}
    for name, text in JOBS.items():
        job = jobs.add_parser(name, help=text, description=text)
        if name == wanted:  # only the job that runs is imported: a guest has no matplotlib
            modules[name] = importlib.import_module(f"lab.{name}")
            modules[name].add_arguments(job)
    args = parser.parse_args(argv)
    try:
        return int(modules[args.job].run(args))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
