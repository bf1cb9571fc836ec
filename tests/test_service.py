"""What `fv up` remembers and what it does to the host's name servers."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

from fv import process, service
from fv.config.check import check
from fv.config.load import Loaded, decode
from fv.config.syntax import parse
from fv.errors import FvError
from fv.plan.text import Line, Plan, Section

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
TEXT = f"""[[endpoints]]
type = "wireguard"
tag = "wg0"
address = "10.7.0.2/24"
private_key = "{KEY}"
[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["0.0.0.0/0"]
[gateway]
everything = true
dns = ["192.0.2.53", "2001:db8::53"]
"""


@pytest.fixture
def config() -> Loaded:
    found = decode(parse(TEXT, "edge.toml"))
    check(found)
    return found


def tool(folder: pathlib.Path, name: str, status: int = 0) -> pathlib.Path:
    """A program that writes down its arguments and its input."""
    log = folder / "log"
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n[ "$1" = -a ] && cat >> {log}\nexit {status}\n')
    program.chmod(0o755)
    return log


@pytest.mark.parametrize(("name", "expected"), [
    ("resolvectl", "resolvectl dns wg0 192.0.2.53 2001:db8::53\nresolvectl domain wg0 ~.\nresolvectl revert wg0\n"),
    ("resolvconf", "resolvconf -a wg0 -m 0 -x\nnameserver 192.0.2.53\nnameserver 2001:db8::53\nresolvconf -d wg0 -f\n"),
])  # fmt: skip
def test_name_servers_are_set_and_put_back(
    name: str, expected: str, config: Loaded, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tool(tmp_path, name)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(shutil, "which", lambda word: word if word == name else None)
    assert service._dns_tool(config) == name
    record = service.Record("edge.toml", 1, "/run/x", service._dns_device(config), name)
    service._set_dns(record, config)
    service._restore_dns(record)
    assert log.read_text() == expected


def test_name_servers_without_a_tool(config: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda word: None)
    with pytest.raises(FvError, match=r"edge.toml:11: gateway.dns: neither resolvectl nor resolvconf"):
        service._dns_tool(config)


def test_a_tool_that_fails_is_quoted(config: Loaded, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "resolvectl", status=4)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(FvError, match=r"resolvectl dns wg0 192\.0\.2\.53 2001:db8::53: status 4"):
        service._set_dns(service.Record("edge.toml", 1, "/run/x", "wg0", "resolvectl"), config)


def test_numbers_of_a_plan() -> None:
    lines = (
        Line("route", "unreachable default table 51820 metric 4096"),
        Line("rule", "priority 5200 fwmark 0xca6c table main"),
        Line("rule", "priority 5210 iif eth1 table 51820"),
    )
    plan = Plan((), (Section("network", "", lines),))
    assert service._numbers(plan, "table") == (51820,)
    assert service._numbers(plan, "priority") == (5200, 5210)


def test_records(tmp_path: pathlib.Path) -> None:
    path = service.record_path("edge", str(tmp_path / "fv.sock"))
    assert service.read_record(path) is None
    path.write_text("{")
    with pytest.raises(FvError, match="not a record"):
        service.read_record(path)
    with pytest.raises(FvError, match="is not up"):
        service.down("other.toml", str(tmp_path / "fv.sock"))


def test_a_process_is_known_by_number_and_name() -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            # The kernel closes descriptors, which tells Popen of the exec, a moment before it sets the name.
            deadline = time.monotonic() + 5
            while not process.alive(child.pid, "sleep"):
                assert time.monotonic() < deadline
            assert not process.alive(child.pid, "fvd"), "the number may have been given to another program"
            used = process.usage(child.pid)
            assert used is not None
            assert used.resident > 0
            assert used.descriptors >= 3
        finally:
            child.kill()
    assert process.usage(child.pid) is None
    assert process.usage(os.getpid()) is not None
