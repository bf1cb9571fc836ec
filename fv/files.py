"""Writing a file so that there is never half of it: beside it, synced, then moved over it."""

import contextlib
import os
import pathlib
import tempfile


def write_atomically(path: pathlib.Path, text: str, mode: int = 0o600) -> None:
    """An existing file keeps its owner and mode; a new one gets `mode`. OSError is the caller's to explain."""
    target = path.resolve()  # a link stays a link
    old = target.stat() if target.exists() else None
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(text.encode("utf-8", "surrogateescape"))
            out.flush()
            os.fchmod(out.fileno(), (old.st_mode & 0o7777) if old else mode)
            if old:
                with contextlib.suppress(PermissionError):
                    os.fchown(out.fileno(), old.st_uid, old.st_gid)
            os.fsync(out.fileno())
        pathlib.Path(name).replace(target)
    except BaseException:
        pathlib.Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
