"""Transports are found by the scheme of an address, loaded when used, and can be added to."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from bowstring.errors import UsageError
from bowstring.transport import dial, is_loopback, listen, register


@pytest.mark.parametrize("address", ["", "unix", "nosuch:x", "/tmp/x.sock", "://", "TCP://127.0.0.1:1"])
def test_unknown_scheme(address: str) -> None:
    """An address without a known scheme is refused, and the error names those there are."""
    for call in (listen, dial, is_loopback):
        with pytest.raises(UsageError, match="unix:, tcp:"):
            call(address)


def test_loaded_on_first_use() -> None:
    """Importing the room imports none of its transports."""
    script = "import sys, bowstring.transport; print([name for name in sys.modules if 'transport' in name])"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=60
    )
    for name in ("unix", "tcp", "inproc"):
        assert f"bowstring.transport.{name}'" not in found.stdout


def test_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of somebody else's can carry a scheme of its own, and none can take over another's."""
    module = types.ModuleType("carrier_pigeon")
    module.is_loopback = lambda address: address == "pigeon:home"  # type: ignore[attr-defined]  # made here
    monkeypatch.setitem(sys.modules, "carrier_pigeon", module)
    register("pigeon", "carrier_pigeon")
    register("pigeon", "carrier_pigeon")
    assert is_loopback("pigeon:home")
    with pytest.raises(UsageError):
        register("pigeon", "another_bird")


def test_a_path_alone_gets_a_hint() -> None:
    """The error for a path of a socket file names the address that is meant; other errors do not."""
    with pytest.raises(UsageError) as raised:
        listen("tables.sock")
    assert "'unix:tables.sock'" in str(raised.value)
    with pytest.raises(UsageError) as raised:
        listen("http://127.0.0.1")
    assert "unix:http" not in str(raised.value)
