"""Finding the engine and handing it a plan: the plan's text goes by a sealed memfd, never by a file or an argument."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import fv
from fv.errors import FvError
from fv.plan.text import Plan, write


def find_fvd() -> str:
    """$FV_FVD, beside this Python, build/fvd of the checkout, PATH."""
    asked = os.environ.get("FV_FVD")
    if asked:
        if not os.access(asked, os.X_OK):
            raise FvError(f"FV_FVD={asked} is not a program that can be run")
        return asked
    beside = pathlib.Path(sys.executable).parent / "fvd"
    checkout = pathlib.Path(fv.__file__).resolve().parent.parent / "build" / "fvd"
    for candidate in (beside, checkout):
        if os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("fvd")
    if found is None:
        raise FvError("the engine `fvd` is not found", hint="./task build, or pip install ., or set FV_FVD to its path")
    return found


def plan_memfd(plan: Plan) -> int:
    """A descriptor with the plan's text, sealed against any change. It is inherited by exec."""
    descriptor = os.memfd_create("fv-plan", os.MFD_ALLOW_SEALING)
    text = write(plan).encode()
    while text:
        text = text[os.write(descriptor, text) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    os.set_inheritable(descriptor, True)
    return descriptor


def become_engine(plan: Plan) -> None:
    """Replace this process by the engine. Returns never; raises FvError when the engine cannot be started."""
    fvd = find_fvd()
    descriptor = plan_memfd(plan)
    prepare_folders(plan)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(fvd, [fvd, "--plan", f"/proc/self/fd/{descriptor}"])  # noqa: S606 - becoming the engine is the point
    except OSError as error:
        raise FvError(f"{fvd} cannot be started: {error.strerror}") from None


def start_engine(plan: Plan, log: pathlib.Path) -> subprocess.Popen[bytes]:
    """The engine as a child in a session of its own, its log appended to a file."""
    fvd = find_fvd()
    descriptor = plan_memfd(plan)
    prepare_folders(plan)
    try:
        with log.open("ab") as out:
            return subprocess.Popen(
                [fvd, "--plan", f"/proc/self/fd/{descriptor}"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
    except OSError as error:
        raise FvError(f"{fvd} cannot be started: {error.strerror}") from None
    finally:
        os.close(descriptor)


def prepare_folders(plan: Plan) -> None:
    """The folders of the state and of the control socket, private to the user who runs the engine."""
    engine = next(iter(plan.of("engine")), None)
    if engine is None:
        return
    state, control = engine.get("state"), engine.get("control")
    for folder in (state, str(pathlib.Path(control).parent) if control else ""):
        if folder:
            with contextlib.suppress(FileExistsError):
                try:
                    pathlib.Path(folder).mkdir(mode=0o700, parents=True)
                except PermissionError:
                    raise FvError(f"{folder} cannot be made", hint="run as root (sudo)") from None
