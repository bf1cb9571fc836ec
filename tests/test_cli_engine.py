"""The commands against the real engine, in network namespaces."""

import os
import pathlib
import subprocess
import sys

import pytest

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
ROOT = pathlib.Path(__file__).resolve().parent.parent

CONFIG = f"""[[endpoints]]
type = "wireguard"
tag = "fvtest0"
address = "10.7.0.1/24"
private_key = "{KEY}"
listen_port = 51999
mtu = 1280
[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["10.7.0.2/32"]

[engine]
state = ""
control = "@/fv.sock"
"""


@pytest.fixture
def config(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "edge.toml"
    file.write_text(CONFIG.replace("@", str(tmp_path)))
    return file


SCRIPT = """
set -e
ip link set lo up
fv() { "$PYTHON" -m fv "$@"; }
trap 'fv down "$1" >/dev/null 2>&1' EXIT
fv up "$1"
ip -4 -o address show dev fvtest0 | grep -q 'inet 10.7.0.1/24'
fv up "$1" 2>&1 | grep -q 'is up already' || exit 3
fv status --control "$2" | grep -q 'fvtest0, port 51999'
sed -i 's|"10.7.0.2/32"|"10.7.0.2/32", "10.9.0.0/16"|' "$1"
fv reload "$1" | grep -q '^+route=10.9.0.0/16 dev fvtest0'
ip route get 10.9.1.1 | grep -q 'dev fvtest0'
fv down "$1" | grep -q 'is down'
! ip link show dev fvtest0 2>/dev/null
! ip route get 10.9.1.1 2>/dev/null
fv down "$1" 2>&1 | grep -q 'is not up' || exit 4
echo the end
"""


@pytest.mark.needs("root", "tun", "unshare", "ip")
def test_up_reload_down(config: pathlib.Path, fvd: pathlib.Path) -> None:
    """The real engine, in a namespace of its own."""
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", SCRIPT, "bash", str(config), str(config.parent / "fv.sock")],
        env=os.environ | {"PYTHON": sys.executable, "FV_FVD": str(fvd)}, text=True, capture_output=True, timeout=120,
        check=False, cwd=ROOT,
    )  # fmt: skip
    log = config.parent / "edge.log"
    assert done.stdout.endswith("the end\n"), (done.stdout, done.stderr, log.read_text() if log.exists() else "")
