"""The feature table: with each feature off, and with all of them, a LAN's transfers come to the same results."""

import subprocess

import pytest

from tests.gateway.network import SERVER4, SERVER6, fvd, running
from tests.interop import transfer

pytestmark = pytest.mark.needs("root", "netns", "tun")

# The names that `fvd --probe` prints; the first test sees to it that none is missing here.
FEATURES = [
    "udp_segment", "udp_gro", "tun_vnet_hdr", "tun_csum", "tun_tso", "tun_uso", "tun_multi_queue", "reuseport_prog",
    "splice", "so_mark", "bind_device", "pktinfo", "recv_tos", "txtime", "avx2", "avx512", "neon",
]  # fmt: skip


def test_feature_names() -> None:
    printed = subprocess.run([fvd(), "--probe"], capture_output=True, text=True, check=True).stdout
    words = {line.split()[0] for line in printed.splitlines() if line.split()}
    assert set(FEATURES) <= words
    assert subprocess.run([fvd(), "--probe"], capture_output=True, env={"FV_FEATURE_OFF": ",".join(FEATURES)},
                          check=False).returncode == 0  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])
@pytest.mark.parametrize("off", [*FEATURES, "all"])
def test_feature_off(off: str, workers: int) -> None:
    with running(engine=f'workers = {workers}\nfeature_off = ["{off}"]') as net:
        for address in (SERVER4, SERVER6):
            transfer.tcp(net.client, net.server, address, 500_000)
            transfer.udp(net.client, net.server, address, 60_000, segments=8)
            transfer.ping(net.client, address, 1000)
        for engine in net.engines:
            assert f"feature_off={off}" in engine.plan()
            assert not [k for k in engine.stats() if k.startswith(f"feature_refused.{off}")]
