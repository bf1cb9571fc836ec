"""The commands against the real engine, in network namespaces."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from fv.config.load import decode
from fv.config.syntax import parse
from fv.keys import show_key
from fv.plan.ceilings import ceilings
from fv.plan.compile import compile_plan
from fv.plan.facts import Facts
from fv.plan.text import write

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


CEILING = """
ip link set lo up
"$FV_FVD" --plan "$1" & engine=$!
for i in $(seq 200); do "$FV_FVD" --health --control "$2" >/dev/null 2>&1 && break; sleep 0.05; done
grep -E 'VmHWM|VmRSS' /proc/$engine/status
ls /proc/$engine/fd | wc -l
kill $engine; wait $engine
"""


@pytest.mark.needs("root", "tun", "unshare", "ip")
def test_ceilings_hold(tmp_path: pathlib.Path, fvd: pathlib.Path) -> None:
    """An engine with 2,000 peers, idle, is below what `fv plan` says of it, in memory and in descriptors."""
    peers = "".join(
        f'[[endpoints.peers]]\npublic_key = "{show_key(number.to_bytes(2, "big") * 16)}"\n'
        f'allowed_ips = ["10.{8 + number // 256}.{number % 256}.0/24"]\n'
        for number in range(1, 2001)
    )
    text = (
        CONFIG.split("[[endpoints.peers]]")[0] + peers + CONFIG[CONFIG.index("[engine]") :].replace("@", str(tmp_path))
    )
    loaded = decode(parse(text, "edge.toml"))
    plan = compile_plan(loaded, Facts()).plan
    file = tmp_path / "plan"
    file.write_text(write(plan))
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", CEILING, "bash", str(file), str(tmp_path / "fv.sock")],
        env=os.environ | {"FV_FVD": str(fvd)}, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r"VmHWM:\s+(\d+) kB\nVmRSS:\s+\d+ kB\n(\d+)\n", done.stdout)
    assert found is not None, (done.stdout, done.stderr)
    items = {item.what: item for item in ceilings(plan)}
    without_leases = items["total"].bytes - items["leases"].bytes
    assert int(found[1]) * 1024 < without_leases, "nothing is leased while nothing flows"
    assert int(found[2]) <= items["total"].descriptors
