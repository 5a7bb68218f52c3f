"""Who may come in, and what those who are in can do to the producer's memory: look."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, needs_root
from tests.faults.program import Program
from tests.faults.tables import publish_again, table_of
from tests.peer.raw import RawReader


@pytest.fixture
def region(serve: Callable[..., bow.Server]) -> Iterator[int]:
    """Return the descriptor that a reader gets of its producer's memory, which must be the same afterwards."""
    server = serve("unix:")
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as reader:
        reader.hello()
        reader.want()
        (fd,) = [each for heard in reader.hear_all() for each in heard.attachments]
        assert isinstance(fd, int)
        yield fd
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().equals(table_of())
        reader.free(reader.addresses())
    publish_again(server, 3)  # the owner itself still can write


def map_and_write(fd: int) -> None:
    with mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
        memory[0] = 7


ATTACKS: dict[str, Callable[[int], object]] = {
    "write": lambda fd: os.write(fd, b"x"),
    "write at": lambda fd: os.pwrite(fd, b"x", 0),
    "map for writing": map_and_write,
    "shrink": lambda fd: os.ftruncate(fd, 0),
    "grow": lambda fd: os.ftruncate(fd, 1 << 30),
    "seal": lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    "shrink by its path": lambda fd: os.truncate(f"/proc/self/fd/{fd}", 0),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_reader_cannot_change_a_region(region: int, attack: str) -> None:
    """A reader can neither write nor resize nor seal what it was handed, whatever it does to the descriptor."""
    with pytest.raises(OSError):
        ATTACKS[attack](region)


@pytest.mark.parametrize("attack", ATTACKS)
def test_opening_it_anew_does_not_help(region: int, attack: str) -> None:
    """Nor by a descriptor that it opens anew for writing, where the system allows that at all."""
    try:
        again = os.open(f"/proc/self/fd/{region}", os.O_RDWR)
    except OSError:
        return
    try:
        with pytest.raises(OSError):
            ATTACKS[attack](again)
    finally:
        os.close(again)


def test_a_reader_may_look(region: int) -> None:
    """What it may do is what it is for."""
    with mmap.mmap(region, 4096, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        assert len(memory[:8]) == 8


def test_the_socket_is_private(serve: Callable[..., bow.Server]) -> None:
    """The socket is for its user alone, and so is the folder that the server chose for it."""
    path = Path(serve("unix:").address.removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


@needs_root
@pytest.mark.parametrize("opened", [False, True], ids=["as made", "file mode loosened"])
def test_another_user(
    serve: Callable[..., bow.Server], run: Callable[..., Program], tmp_path: Path, *, opened: bool
) -> None:
    """Another user gets no data, also where the socket's mode would let it in; the server goes on."""
    folder = tmp_path
    for each in (folder, *folder.parents):
        if each != Path("/") and each.stat().st_uid == os.geteuid():
            each.chmod(each.stat().st_mode | 0o711)
    server = serve(f"unix:{folder}/s")
    endpoint = server.publish("t", table_of())
    if opened:
        (folder / "s").chmod(0o666)
    program = run("other_user", str(endpoint))
    assert program.hear() == "AccessDenied"
    program.end()
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


@pytest.mark.parametrize("token", [None, "", "secre", "secret ", "sécret"])
def test_a_wrong_token(serve: Callable[..., bow.Server], between_processes: str, token: str | None) -> None:
    """Without the very token there is no data, and no word of what there is."""
    server = serve(between_processes, token="secret")
    endpoint = server.publish("t", table_of())
    uri = str(endpoint).replace("&token=secret", "" if token is None else f"&token={token}")
    with pytest.raises(bow.AccessDenied):
        bow.connect(uri.replace(" ", "%20"), limits=LIMITS)
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://[::]:0"])
def test_off_loopback_without_a_token(address: str) -> None:
    """A server that other machines could reach is not even made without a token."""
    with pytest.raises(bow.UsageError, match="token"):
        bow.Server(address, limits=LIMITS)
