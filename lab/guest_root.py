"""The root of a guest: packages of the distribution, unpacked and never installed, as one initramfs.

    ~/.cache/fv/guest/ARCH/apt/       a private state of apt: nothing of the host's is touched, and another
                                      architecture's packages need no `dpkg --add-architecture`
    ~/.cache/fv/guest/ARCH/vmlinuz    the distribution's cloud kernel
    ~/.cache/fv/guest/ARCH/root.cpio  busybox, iproute2, wg, iperf3, Python, pyroute2, the kernel's modules
    ~/.cache/fv/guest/ARCH/stamp      what it was made of; another list means: make it again

A job's own files come in a second archive behind the first (the kernel unpacks archives one after another), so the
big one is made once.
"""

import hashlib
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab import peers
from lab.errors import LabError

# The installed size is what a guest's memory pays: only what the lab runs.
PACKAGES = ("busybox-static", "dash", "python3", "iperf3", "iproute2", "wireguard-tools", "ethtool", "kmod",
            "libgcc-s1", "python3-cryptography")  # fmt: skip

# Dependencies that serve installing only, or that nothing here runs.
UNWANTED = ("perl", "libperl", "adduser", "debconf", "dpkg", "passwd", "libpam", "tar_", "usrmerge", "libdb5",
            "libgdbm", "init-system-helpers", "libfile-find", "libtext-glob", "libnumber-compare", "libsemanage",
            "libsepol", "gcc-12-base", "tzdata", "media-types", "mailcap", "libaudit", "libcap-ng")  # fmt: skip

# Parts of the kernel's module tree that are kept.
MODULES = ("net", "crypto", "lib", "arch", "drivers/net", "drivers/virtio", "drivers/char", "drivers/crypto", "fs/fuse")
NOT_MODULES = (
    "drivers/net/ethernet",
    "drivers/net/wireless",
    "drivers/net/hyperv",
    "drivers/net/phy",
    "drivers/crypto/ccp",
)

PRUNED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/bash-completion",
          "usr/share/lintian", "usr/lib/systemd", "usr/lib/python3.11/test", "usr/lib/python3.11/idlelib")  # fmt: skip

# distribution (ID in os-release) -> the package that depends on its cloud kernel
KERNELS = {"debian": "linux-image-cloud-{debian_arch}"}

DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}

BUSYBOX = """
mount umount cat echo ls mkdir sleep reboot nsenter sed grep rm chmod cp mv dmesg head tail sha256sum dd nc kill ps
timeout unshare setsid taskset which tee uname wc cut tr cmp od true false test touch seq date env id ln free df sort
xargs pidof find sysctl
"""

MERGED = ("bin", "sbin", "lib", "lib64")  # symbolic links into usr/, as the distribution has them


@dataclass(frozen=True)
class Root:
    kernel: Path
    archive: Path
    release: str  # as uname -r will say


def folder(arch: str) -> Path:
    return peers.cache() / "guest" / arch


def distribution() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "ID":
            return value.strip('"')
    return "unknown"


def missing() -> str:
    """Why no root can be made here; "" when one can."""
    if distribution() not in KERNELS:
        return f"guests are made of packages of {', '.join(KERNELS)}, and this is {distribution()}"
    lacking = [name for name in ("apt-get", "dpkg-deb", "depmod") if shutil.which(name) is None]
    return f"there is no {lacking[0]} (guests are made of Debian packages)" if lacking else ""


def apt(arch: str, *words: str, where: Path | None = None) -> str:
    """apt with its own state: another architecture, no installed package, the host's sources and keys."""
    debian_arch = DEBIAN_ARCH[arch]
    state, cache = folder(arch) / "apt" / "state", folder(arch) / "apt" / "cache"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "APT::Architecture": debian_arch,
        "APT::Architectures": debian_arch,
        "Dir::State": str(state),
        "Dir::State::status": "/dev/null",
        "Dir::Cache": str(cache),
        "APT::Sandbox::User": "root",
    }
    command = [words[0], "-q", *(f"-o{key}={value}" for key, value in options.items()), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=where)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip()[-400:]}", where=f"packages of {arch}")
    return done.stdout


def unpack(package: Path, root: Path) -> None:
    """Like dpkg-deb -x, but directories of the package do not replace the links of a merged /usr."""
    data = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(root)], stdin=data.stdout, check=True)
    if data.wait():
        raise LabError("cannot be unpacked", where=str(package))


def download(arch: str) -> tuple[list[Path], Path]:
    """Packages with all they need, and the kernel's."""
    name = distribution()
    if name not in KERNELS:
        raise LabError(
            f"no guest kernel is known for {name}", where="lab/guest_root.py: KERNELS", hint="one line of data"
        )
    archives = folder(arch) / "apt" / "cache" / "archives"
    for old in archives.glob("*.deb"):  # of another recipe
        old.unlink()
    apt(arch, "apt-get", "update")
    apt(arch, "apt-get", "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES)
    meta = KERNELS[name].format(debian_arch=DEBIAN_ARCH[arch])
    kernel = ""
    for line in apt(arch, "apt-cache", "show", "--no-all-versions", meta).splitlines():
        key, _, value = line.partition(":")
        if key == "Depends":
            kernel = value.split(",")[0].split("(")[0].strip()
    if not kernel:
        raise LabError("depends on no kernel", where=meta)
    apt(arch, "apt-get", "download", kernel, where=archives)
    packages = sorted(p for p in archives.glob("*.deb") if not p.name.startswith((*UNWANTED, "linux-image-")))
    return packages, next(archives.glob("linux-image-*.deb"))


def module_wanted(relative: str) -> bool:
    return relative.startswith(tuple(f"{part}/" for part in MODULES)) and not relative.startswith(NOT_MODULES)


def add_kernel(package: Path, root: Path, work: Path) -> tuple[Path, str]:
    unpack(package, work)
    image = next((work / "boot").glob("vmlinuz-*"))
    release = image.name.removeprefix("vmlinuz-")
    source, target = work / "lib" / "modules" / release, root / "usr" / "lib" / "modules" / release
    for file in source.rglob("*.ko*"):
        relative = file.relative_to(source / "kernel") if file.is_relative_to(source / "kernel") else None
        if relative is not None and module_wanted(str(relative)):
            (target / "kernel" / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target / "kernel" / relative)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (source / name).is_file():
            shutil.copy2(source / name, target / name)
    subprocess.run(["depmod", "-b", str(root), release], check=True, capture_output=True)
    return image, release


def make(arch: str) -> Root:
    """The guest's root, made now or found as it was made before."""
    if arch not in DEBIAN_ARCH:
        raise LabError(f"no guest is known for {arch}", where="--arch", hint=", ".join(DEBIAN_ARCH))
    if why := missing():
        raise LabError(why, where="qemu")
    home = folder(arch)
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    stamp = home / "stamp"
    if stamp.is_file():
        known, _, release = stamp.read_text().strip().partition(" ")
        if known == recipe:
            return Root(home / "vmlinuz", home / "root.cpio", release)
    print(f"qemu: making the {arch} guest's root in {home}", flush=True)
    packages, kernel = download(arch)
    root, work = home / "root", home / "work"
    for path in (root, work):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        unpack(package, root)
    for name in PRUNED:
        shutil.rmtree(root / name, ignore_errors=True)
    add_python_package(root, "pyroute2")
    image, release = add_kernel(kernel, root, work)
    shutil.copy2(image, home / "vmlinuz")
    busybox_links(root)
    with (home / "root.cpio").open("wb") as file:
        write_archive(file, ((path, str(path.relative_to(root))) for path in sorted(root.rglob("*"))), devices=True)
    shutil.rmtree(root)
    shutil.rmtree(work)
    stamp.write_text(f"{recipe} {release}\n")
    return Root(home / "vmlinuz", home / "root.cpio", release)


def add_python_package(root: Path, name: str) -> None:
    """A pure Python package of this interpreter, copied: it has no architecture."""
    module = __import__(name)
    source = Path(str(module.__file__)).parent
    target = root / "usr" / "lib" / "python3" / "dist-packages" / name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def busybox_links(root: Path) -> None:
    """What the packages do not bring is busybox's. The shell is not: busybox's own prefers its applets to iproute2."""
    for name in BUSYBOX.split():
        path = root / "usr" / "bin" / name
        if not path.exists() and not path.is_symlink():
            path.symlink_to("busybox")


# cpio's "newc" format: 110 bytes of hexadecimal fields, the name, the data, each padded to four bytes. See the
# kernel's Documentation/driver-api/early-userspace/buffer-format.rst.


def entry(file: IO[bytes], name: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0)) -> None:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))


def write_archive(file: IO[bytes], paths: Iterable[tuple[Path, str]], *, devices: bool = False) -> None:
    """Everything belongs to root; hard links are written as files."""
    if devices:  # the kernel opens these before anything has mounted /dev
        entry(file, "dev", stat.S_IFDIR | 0o755, b"")
        entry(file, "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))
        entry(file, "dev/null", stat.S_IFCHR | 0o666, b"", (1, 3))
        for name in ("proc", "sys", "run", "tmp", "root"):
            entry(file, name, stat.S_IFDIR | 0o755, b"")
    for path, name in paths:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            entry(file, name, mode, str(path.readlink()).encode())
        elif stat.S_ISDIR(mode):
            entry(file, name, mode, b"")
        elif stat.S_ISREG(mode):
            entry(file, name, mode, path.read_bytes())
    entry(file, "TRAILER!!!", 0, b"")
    file.write(bytes(-file.tell() % 512))
