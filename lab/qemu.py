"""Guests: the distribution's cloud kernel with its wireguard module, x86-64 and arm64, by QEMU.

    host                                    guest (initramfs only: guest_root.py, and the job's own archive)
    run_in_guest(script, files)  ------>    /init loads modules, runs /job/script
    lines as they come           <------    virtio port "output"
                                            "status N", then the machine is switched off

One guest holds the whole topology in namespaces, so that all implementations, the kernel's module too, run on the same
kernel and the same CPUs. KVM (on a Mac, HVF) where it works, TCG where not; the accelerator is in every row.

    python -m lab qemu impls [--arch aarch64] [--binaries DIR] [ARGUMENTS OF python -m lab impls]
    python -m lab qemu run SCRIPT [FILE...]      a shell script in a guest, its output here
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import guest_root, impls, log, machine, peers
from lab.errors import LabError

# machine -> QEMU's program, its machine type, the console's device
EMULATORS = {
    "x86_64": ("qemu-system-x86_64", "q35", "ttyS0"),
    "aarch64": ("qemu-system-aarch64", "virt", "ttyAMA0"),
}

# x86-64 under KVM in KVM: a hypervisor may show MSR 0x10a (arch capabilities) and refuse to set it, which ends QEMU.
CPU = {("x86_64", "kvm"): "host,-arch-capabilities", ("aarch64", "kvm"): "host", ("aarch64", "hvf"): "host"}

KVM_PATIENCE = 15  # seconds; where it works a kernel is up in two

# Where it is started by hand: /init of the guest. The port has a name in sysfs; udev is not there to link it.
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/net
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /var /run/netns /run/wireguard
ln -sfn /run /var/run
for module in virtio_pci virtio_console tun veth wireguard virtio_rng; do modprobe -q $module; done
ip link set lo up
port=/dev/vport0p1
for entry in /sys/class/virtio-ports/*; do
    [ "$(cat $entry/name)" = output ] && port=/dev/${entry##*/}
done
cd /job
sh ./script > $port 2>&1
echo "status $?" > $port
sleep 0.1
reboot -f
"""


@dataclass(frozen=True)
class Outcome:
    output: str
    status: int
    accelerator: str
    kernel: str
    seconds: float


def accelerator(arch: str) -> str:
    """What QEMU can use here for this architecture: LAB_ACCELERATOR, hvf, kvm where it boots, tcg."""
    if told := os.environ.get("LAB_ACCELERATOR"):
        return told
    if platform.machine().replace("arm64", "aarch64") != arch:
        return "tcg"
    if platform.system() == "Darwin":
        return "hvf"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    return "kvm" if kvm_boots(arch) else "tcg"


def kvm_boots(arch: str) -> bool:
    """Whether an ordinary kernel comes up under this machine's /dev/kvm.

    A machine without virtualization in hardware may have the device all the same (a paravirtual KVM that runs only
    kernels made for it, and emulates others without end), so it is tried: a kernel with no root must panic within
    KVM_PATIENCE. The answer is kept per boot of the host.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = guest_root.folder(arch) / "kvm"
    if answer.is_file():
        known, _, word = answer.read_text().strip().partition(" ")
        if known == boot:
            return word == "boots"
    root = guest_root.make(arch)
    program, machine_type, console = EMULATORS[arch]
    command = [program, "-machine", machine_type, "-accel", "kvm", "-cpu", CPU[arch, "kvm"], "-m", "512"]
    command += ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "none", "-kernel", str(root.kernel)]
    command += ["-append", f"console={console} quiet panic=-1"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=KVM_PATIENCE, check=False)
        boots = done.returncode == 0  # it panicked, and a panic is a reboot, which ends QEMU
    except subprocess.TimeoutExpired:
        boots = False
    answer.write_text(f"{boot} {'boots' if boots else 'does not boot'}\n")
    return boots


def missing(arch: str = platform.machine()) -> str:
    """Why no guest can be run here; "" when one can."""
    if arch not in EMULATORS:
        return f"no guest is known for {arch}"
    program = EMULATORS[arch][0]
    if shutil.which(program) is None:
        return f"there is no {program} (install qemu-system-x86 or qemu-system-arm)"
    return guest_root.missing()


def job_archive(path: Path, script: str, files: Mapping[str, Path], work: Path) -> None:
    """The job's own archive: /init, /job/script and files by their place in the guest (a folder comes whole)."""
    (work / "init").write_text(INIT)
    (work / "init").chmod(0o755)
    (work / "script").write_text(script)
    (work / "empty").mkdir()
    entries: list[tuple[Path, str]] = [
        (work / "init", "init"),
        (work / "empty", "job"),
        (work / "script", "job/script"),
    ]
    made = {"job", "usr", "usr/bin", "usr/sbin", "usr/lib"}
    for place, source in files.items():
        inside = place.strip("/")
        if not source.exists():
            raise LabError("there is no such file", where=str(source))
        for parent in reversed(Path(inside).parents):
            if str(parent) not in {".", *made}:
                made.add(str(parent))
                entries.append((work / "empty", str(parent)))
        entries.append((source.resolve(), inside))
        if source.is_dir():
            entries += [
                (path, f"{inside}/{path.relative_to(source)}")
                for path in sorted(source.rglob("*"))
                if "__pycache__" not in path.parts
            ]
    with path.open("wb") as file:
        guest_root.write_archive(file, entries)


def run_in_guest(
    script: str,
    files: Mapping[str, Path] | None = None,
    *,
    arch: str = platform.machine(),
    timeout: float = 60,
    cpus: int = 2,
    memory_mib: int = 1024,
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    """Boots a guest, runs a shell script as root in /job, and gives what it wrote and its exit status.

    `files` maps places in the guest to files or folders of the host. In the guest are busybox, ip, wg, iperf3,
    ethtool, Python with pyroute2; tun, veth and wireguard are loaded. Raises LabError when the guest does not
    end by itself within `timeout` seconds (its console's last lines are in the error).
    """
    if why := missing(arch):
        raise LabError(why, where="qemu")
    root = guest_root.make(arch)
    program, machine_type, console = EMULATORS[arch]
    how = accelerator(arch)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fv-guest-") as name:
        work = Path(name)
        job_archive(work / "job.cpio", script, files or {}, work)
        with (work / "initrd").open("wb") as initrd:
            for part in (root.archive, work / "job.cpio"):
                with part.open("rb") as file:
                    shutil.copyfileobj(file, initrd, 1 << 20)
        output, console_log = work / "output", work / "console"
        output.touch()
        command = [
            program,
            *("-machine", machine_type, "-accel", how, "-cpu", CPU.get((arch, how), "max")),
            *("-smp", str(cpus), "-m", str(memory_mib), "-nodefaults", "-no-reboot", "-display", "none"),
            *("-kernel", str(root.kernel), "-initrd", str(work / "initrd")),
            *("-append", f"console={console} quiet panic=-1 net.ifnames=0"),
            *("-chardev", f"file,id=console,path={console_log}", "-serial", "chardev:console"),
            *("-device", "virtio-serial-pci", "-chardev", f"file,id=output,path={output}"),
            *("-device", "virtserialport,chardev=output,name=output"),
            *("-device", "virtio-rng-pci"),
        ]
        guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            text = follow(guest, output, started + timeout, on_line)
        finally:
            if guest.poll() is None:
                guest.send_signal(signal.SIGTERM)
            _, complaint = guest.communicate(timeout=10)
        body, found, status = text.rstrip("\n").rpartition("status ")
        if not found or not status.isdigit():
            said = console_log.read_text(errors="replace")[-600:] if console_log.is_file() else ""
            raise LabError(
                f"the guest did not finish within {timeout:g} s: {complaint.strip()} {said.strip()} {text[-400:]}",
                where=f"qemu {arch} {how}",
            )
        return Outcome(body, int(status), how, root.release, time.monotonic() - started)


def follow(guest: subprocess.Popen[str], output: Path, deadline: float, on_line: Callable[[str], None] | None) -> str:
    """Reads the guest's lines as they come until it is switched off or the time is up."""
    seen = 0
    with output.open(encoding="utf-8", errors="replace") as file:
        text = ""
        while True:
            over = guest.poll() is not None
            text += file.read()
            while on_line is not None and (end := text.find("\n", seen)) >= 0:
                on_line(text[seen:end])
                seen = end + 1
            if over or time.monotonic() > deadline:
                return text
            time.sleep(0.02)


def lab_files() -> dict[str, Path]:
    """The lab's own code, for a guest; measured from inside by the same program as on the host."""
    return {"/lab/lab": machine.CHECKOUT / "lab"}


def binary_files(arch: str, folder: Path | None) -> dict[str, Path]:
    """Implementations for this architecture: from a folder, from the peers' cache, from the build."""
    places = [folder] if folder else [machine.CHECKOUT / "build"] if arch == platform.machine() else []
    found: dict[str, Path] = {}
    for place in [*places, peers.binaries(arch)]:
        for name in ("fvd", *(peer.name for peer in peers.PEERS)):
            if (place / name).is_file() and f"/lab/bin/{name}" not in found:
                found[f"/lab/bin/{name}"] = place / name
                if (place / f"{name}.pin").is_file():
                    found[f"/lab/bin/{name}.pin"] = place / f"{name}.pin"
    return found


def run_impls(args: argparse.Namespace, rest: list[str]) -> int:
    """`lab impls` inside a guest; its rows come out and go into this side's log."""
    parser = argparse.ArgumentParser(prog="python -m lab qemu impls")
    impls.add_arguments(parser)
    inner = parser.parse_args(rest)
    how = accelerator(args.arch)
    environment = {
        "PYTHONPATH": "/lab",
        "LAB_BINARIES": "/lab/bin",
        "LAB_BACKEND": "qemu",
        "LAB_ACCELERATOR": how,
        "LAB_COMMIT": machine.commit(),
        "LAB_PATH_VERSION": machine.path_version("wireguard"),
        "LAB_HOST": machine.describe(),
    }
    words = [f"{key}={shlex.quote(value)}" for key, value in environment.items()]
    words += ["python3", "-m", "lab", "impls", *map(shlex.quote, rest), "--log", "-"]
    rows: list[dict[str, object]] = []

    def take(line: str) -> None:
        if line.startswith(log.ROW_MARK):
            row = json.loads(line.removeprefix(log.ROW_MARK))
            log.append(inner.log, [row])
            rows.append(row)
        elif not line.startswith("status "):
            print(line, flush=True)

    files = lab_files() | binary_files(args.arch, args.binaries)
    outcome = run_in_guest(
        " ".join(words) + "\n", files, arch=args.arch, timeout=args.timeout, memory_mib=args.memory, on_line=take
    )
    print(
        f"qemu: {args.arch} {how} kernel {outcome.kernel}: {len(rows)} rows, {outcome.seconds:.0f} s; log: {inner.log}"
    )
    return outcome.status


def run_script(args: argparse.Namespace, rest: list[str]) -> int:
    if not rest:
        raise LabError("which script?", where="qemu run", hint="python -m lab qemu run SCRIPT [FILE...]")
    files = {f"/job/{Path(file).name}": Path(file) for file in rest[1:]} | binary_files(args.arch, args.binaries)
    outcome = run_in_guest(
        Path(rest[0]).read_text(), files, arch=args.arch, timeout=args.timeout, memory_mib=args.memory
    )
    print(outcome.output, end="")
    print(f"qemu: {args.arch} {outcome.accelerator} kernel {outcome.kernel}: {outcome.seconds:.1f} s")
    return outcome.status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", choices=EMULATORS, default=platform.machine())
    parser.add_argument("--binaries", type=Path, help="folder with fvd and peers of that architecture")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds until the guest is given up")
    parser.add_argument("--memory", type=int, default=2048, help="MiB of the guest")
    parser.add_argument("what", choices=("impls", "run"))
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, help="arguments of `python -m lab impls`, or SCRIPT [FILE...]"
    )


def run(args: argparse.Namespace) -> int:
    return run_impls(args, args.rest) if args.what == "impls" else run_script(args, args.rest)
