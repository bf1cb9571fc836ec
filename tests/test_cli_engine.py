"""The commands against the real engine, in network namespaces."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from fv.config.load import decode
from fv.config.syntax import parse
from fv.keys import generate_private, public_of, show_key
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


def shell(script: str, *words: str, fvd: pathlib.Path, namespace: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", script, "bash", *words]
    return subprocess.run(
        ["unshare", "--net", *command] if namespace else command, cwd=ROOT, text=True, capture_output=True, timeout=120,
        env=os.environ | {"PYTHON": sys.executable, "FV_FVD": str(fvd)}, check=False,
    )  # fmt: skip


# The interfaces and routes of tests/cases/plan/host.facts.json, then the plan, started and ended.
TAKEN = """
ip link set lo up
for name in eth0 eth1 eth7; do
    ip link add $name type veth peer name p$name
    ip link set $name up
    ip link set p$name up
done
ip address add 192.0.2.100/24 dev eth0
ip address add 192.168.88.1/24 dev eth1
ip route add default via 192.0.2.1
before=$(ip rule; ip -6 rule; ip route show table all)
"$FV_FVD" --plan "$1" & engine=$!
for i in $(seq 100); do "$FV_FVD" --health --control "$2" >/dev/null 2>&1 && echo ready && break; sleep 0.05; done
echo "rules $(ip rule | grep -c 'proto 157')"
kill $engine; wait $engine
after=$(ip rule; ip -6 rule; ip route show table all)
[ "$before" = "$after" ] && echo 'as before'
"""
CASES = ROOT / "tests" / "cases" / "plan"


@pytest.mark.needs("root", "tun", "unshare", "ip")
@pytest.mark.parametrize("path", sorted(CASES.glob("*.plan")), ids=lambda path: path.stem)
def test_every_expected_plan_is_taken(path: pathlib.Path, tmp_path: pathlib.Path, fvd: pathlib.Path) -> None:
    text = re.sub(r"^control=.*", f"control={tmp_path}/fv.sock", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^state=.*", f"state={tmp_path}", text, flags=re.MULTILINE)
    file = tmp_path / "plan"
    file.write_text(text)
    done = shell(TAKEN, str(file), str(tmp_path / "fv.sock"), fvd=fvd)
    expected = sum("table" in line for line in text.splitlines() if line.startswith("rule="))
    assert "ready\n" in done.stdout, done.stderr
    assert f"rules {expected}\n" in done.stdout, done.stdout
    assert ("as before" in done.stdout) == ("on_stop=open" in text), done.stdout + done.stderr


WHOLE = """
set -e
fv() { "$PYTHON" -m fv "$@"; }
a=$1-a b=$1-b folder=$2
end() {
    set +e
    ip netns exec $a "$PYTHON" -m fv down "$folder/a.toml" >/dev/null 2>&1
    ip netns exec $b "$PYTHON" -m fv down "$folder/b.toml" >/dev/null 2>&1
    ip netns del $a; ip netns del $b
}
trap end EXIT
ip netns add $a; ip netns add $b
ip -n $a link add eth0 type veth peer name eth0 netns $b
for host in $a $b; do ip -n $host link set lo up; ip -n $host link set eth0 up; done
ip -n $a address add 192.0.2.1/24 dev eth0
ip -n $b address add 192.0.2.2/24 dev eth0
ip -n $b address add 203.0.113.80/32 dev lo
ip -n $a route add default via 192.0.2.2
# A strict reverse-path filter on the uplink: the peer's answers must pass all the same.
ip netns exec $a sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1
ip netns exec $b "$PYTHON" -m fv up "$folder/b.toml"
ip netns exec $a "$PYTHON" -m fv up "$folder/a.toml"
ip -n $a route get 203.0.113.80 | grep -q 'dev fvwhole-a table 51820'
ip -n $a route get 192.0.2.2 | grep -q 'dev eth0'
ip netns exec $a ping -q -c 2 -i 0.2 -W 3 203.0.113.80 >/dev/null
ip netns exec $a ping -q -c 1 -W 3 -M do -s 1392 203.0.113.80 >/dev/null
# What the engine has set by now (rp_filter) is no reason for another plan.
ip netns exec $a "$PYTHON" -m fv reload "$folder/a.toml" | grep -q 'nothing changes'
ip netns exec $a "$PYTHON" -m fv doctor "$folder/a.toml"
ip netns exec $a "$PYTHON" -m fv status --json --control "$folder/a.sock"
kill -9 $(sed 's/.*"pid":\\([0-9]*\\).*/\\1/' "$folder/a.up")
sleep 0.2
# A crash leaves the kill switch: the world is refused, the neighbour is not.
! ip netns exec $a ping -q -c 1 -W 1 203.0.113.80 2>/dev/null
ip netns exec $a ping -q -c 1 -W 3 192.0.2.2 >/dev/null
ip netns exec $a "$PYTHON" -m fv down "$folder/a.toml"
ip -n $a rule | grep -c . | grep -q '^3$'
ip netns exec $a ping -q -c 1 -W 3 203.0.113.80 >/dev/null
echo the end
"""


@pytest.mark.needs("root", "tun", "ip", "ping")
def test_whole_host_through_the_tunnel(tmp_path: pathlib.Path, fvd: pathlib.Path) -> None:
    """Everything goes in, the engine's own packets do not; the doctor is content; a crash leaves the kill switch."""
    keys = {side: generate_private() for side in "ab"}
    peers = {
        "a": 'allowed_ips = ["0.0.0.0/0"]\naddress = "192.0.2.2"\nport = 51820\npersistent_keepalive_interval = 25\n'
        "[gateway]\neverything = true",
        "b": 'allowed_ips = ["10.7.0.2/32"]',
    }
    for side, other, address, port in (("a", "b", "10.7.0.2/24", 0), ("b", "a", "10.7.0.1/24", 51820)):
        (tmp_path / f"{side}.toml").write_text(
            f'[[endpoints]]\ntype = "wireguard"\ntag = "fvwhole-{side}"\naddress = "{address}"\nlisten_port = {port}\n'
            f'private_key = "{show_key(keys[side])}"\n[[endpoints.peers]]\n'
            f'public_key = "{show_key(public_of(keys[other]))}"\n{peers[side]}\n'
            f'[engine]\nstate = "{tmp_path}/{side}"\ncontrol = "{tmp_path}/{side}.sock"\n'
        )
    done = shell(WHOLE, f"fvpy-{os.getpid()}", str(tmp_path), fvd=fvd, namespace=False)
    assert done.stdout.endswith("the end\n"), (done.stdout, done.stderr)
    assert "good  handshake" in done.stdout
    assert "packets of 1420 bytes pass both ways to 10.7.0.1" in done.stdout
    assert '"handshake_age": ' in done.stdout
    assert "BAD" not in done.stdout


HOPS = """
set -e
name=$1 a=$1-a b=$1-b c=$1-c folder=$2
end() {
    set +e
    for side in a b c; do ip netns exec $name-$side "$PYTHON" -m fv down "$folder/$side.toml" >/dev/null 2>&1; done
    for side in a b c; do ip netns del $name-$side; done
}
trap end EXIT
for host in $a $b $c; do ip netns add $host; ip -n $host link set lo up; done
ip -n $a link add eth0 type veth peer name eth0 netns $b
ip -n $b link add eth1 type veth peer name eth0 netns $c
for end in "$a eth0 192.0.2.1" "$b eth0 192.0.2.2" "$b eth1 198.51.100.1" "$c eth0 198.51.100.7"; do
    set -- $end
    ip -n $1 address add $3/24 dev $2
    ip -n $1 link set $2 up
done
ip -n $c address add 203.0.113.80/32 dev lo
# The exit answers to the entry's tunnel network, which is behind the entry host; the client has no route to the exit.
ip -n $c route add 10.8.0.0/24 via 198.51.100.1
ip netns exec $b sysctl -qw net.ipv4.ip_forward=1
for side in c b a; do
    ip netns exec $name-$side "$PYTHON" -m fv up "$folder/$side.toml"
done
ip -n $a link show dev fvhop-exit | grep -q 'mtu 1340'
! ip -n $a link show dev fvhop-entry 2>/dev/null
ip netns exec $a ping -q -c 2 -i 0.2 -W 3 -M do -s 1312 203.0.113.80
# What leaves the client goes to the entry only.
ip netns exec $a wg show fvhop-exit transfer
echo the end
"""


@pytest.mark.needs("root", "tun", "ip", "ping", "wg")
def test_a_tunnel_in_a_tunnel(tmp_path: pathlib.Path, fvd: pathlib.Path) -> None:
    """Two hops from one configuration: the entry has no interface, the exit's MTU is the entry's less 80."""
    made = {name: generate_private() for name in ("entry", "exit", "server b", "server c")}

    def block(tag: str, address: str, key: str, peer: str, allowed: str, extra: str = "", reach: str = "") -> str:
        return (
            f'[[endpoints]]\ntype = "wireguard"\ntag = "{tag}"\naddress = "{address}"\n'
            f'private_key = "{show_key(made[key])}"\n{extra}\n[[endpoints.peers]]\n'
            f'public_key = "{show_key(public_of(made[peer]))}"\nallowed_ips = ["{allowed}"]\n{reach}\n'
        )

    to_b, to_c = 'address = "192.0.2.2"\nport = 51820', 'address = "198.51.100.7"\nport = 51820'
    listen = "listen_port = 51820"
    files = {
        "a": block("fvhop-entry", "10.8.0.2/32", "entry", "server b", "0.0.0.0/0", reach=to_b)
        + block("fvhop-exit", "10.9.0.2/32", "exit", "server c", "0.0.0.0/0", 'detour = "fvhop-entry"', to_c),
        "b": block("fvhop-b", "10.8.0.1/24", "server b", "entry", "10.8.0.2/32", listen),
        "c": block("fvhop-c", "10.9.0.1/24", "server c", "exit", "10.9.0.2/32", listen),
    }
    for side, text in files.items():
        engine = f'[engine]\nstate = ""\ncontrol = "{tmp_path}/{side}.sock"\n'
        (tmp_path / f"{side}.toml").write_text(text + engine)
    done = shell(HOPS, f"fvhop{os.getpid()}", str(tmp_path), fvd=fvd, namespace=False)
    assert done.stdout.endswith("the end\n"), (done.stdout, done.stderr)


RUN = """
set -e
ip link set lo up
fv() { "$PYTHON" -m fv "$@"; }
ready() {
    for i in $(seq 200); do "$FV_FVD" --health --control "$1" >/dev/null 2>&1 && return; sleep 0.05; done
    exit 9
}
trap 'kill -9 $engine 2>/dev/null' EXIT
"$PYTHON" -m fv run "$1" & engine=$!
ready "$2"
[ "$(cat /proc/$engine/comm)" = fvd ]
ip rule | grep -q 'proto 157'
fv down "$1"
wait $engine
! ip rule | grep 'proto 157'
"$PYTHON" -m fv run "$1" & engine=$!
ready "$2"
kill -9 $engine
wait $engine || true
ip rule | grep -q 'proto 157'
ip route show table 51820 | grep -q '^unreachable default'
fv down "$1"
! ip rule | grep 'proto 157'
! ip route show table 51820 2>/dev/null | grep .
fv down "$1" 2>&1 | grep -q 'is not up'
echo the end
"""


@pytest.mark.needs("root", "tun", "unshare", "ip")
def test_down_after_run(config: pathlib.Path, fvd: pathlib.Path) -> None:
    """`fv run` becomes the engine; `fv down` ends it, and removes the kill switch that a crash of it left."""
    text = config.read_text().replace('"10.7.0.2/32"', '"0.0.0.0/0"')
    config.write_text(text + '\n[gateway]\nlan = ["192.168.9.0/24"]\n')
    done = shell(RUN, str(config), str(config.parent / "fv.sock"), fvd=fvd)
    assert done.stdout.endswith("the end\n"), (done.stdout, done.stderr)
    assert "is down: the engine has ended\n" in done.stdout
    assert "routes and rules of a crash are removed" in done.stdout
