"""The file of a Unix socket: its rights, its life, and who gets in."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bowstring.errors import AccessDenied, BrokenError, DeadlineExceeded, UsageError
from bowstring.private_folders import lock
from bowstring.transport import Listener, dial, is_loopback, listen, socket_file
from bowstring.transport.socket_file import address_of, path_of
from tests.transport.kit.harness import PATIENCE, SOON, in_thread

Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def folder(no_leaks: None) -> Iterator[Path]:
    """Return a folder with a short name that other users may enter."""
    with tempfile.TemporaryDirectory(prefix="bow") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Return ``os.umask``, and put the old one back."""
    old = os.umask(0)
    os.umask(old)
    yield os.umask
    os.umask(old)


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_addresses(name: str) -> None:
    """Any path survives the way through an address, which holds nothing that a query could begin with."""
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        return
    assume(length < 100)  # a longer one is refused
    path = os.path.abspath("/tmp/" + name)
    address = address_of(path)
    assert path_of(address) == path
    assert "?" not in address
    assert "#" not in address
    assert address.isascii()


@pytest.mark.parametrize(
    "address", ["unix:/a?b=1", "unix:/a#b", "unix://host/a", "unix:///a?b", "unix:/a%00b"]
)
def test_bad_addresses(address: str) -> None:
    """A query, a host or a zero byte is no part of the address of a socket."""
    with pytest.raises(UsageError):
        path_of(address)
    with pytest.raises(UsageError):
        is_loopback(address)


def test_three_slashes(folder: Path) -> None:
    """``unix:///path`` is the same as ``unix:/path``, and a relative path is that of the current folder."""
    with listen(f"unix://{folder}/a.sock") as listener:
        assert listener.uri == f"unix:{folder}/a.sock"
        dial(f"unix:{folder}/../{folder.name}/a.sock").close()
    assert path_of("unix:a.sock") == os.path.join(os.getcwd(), "a.sock")


def test_a_relative_path_follows_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same relative address names another file in another folder, however far down that is."""
    deep = folder / "b"
    deep.mkdir()
    far = folder / ("c" * 90)
    far.mkdir()
    for place in (folder, deep, far):
        monkeypatch.chdir(place)
        assert path_of("unix:relative.sock") == str(place / "relative.sock")


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777])
def test_mode(folder: Path, umask: Callable[[int], int], mask: int) -> None:
    """The socket has mode 0600 whatever the umask."""
    umask(mask)
    with listen(f"unix:{folder}/a.sock"):
        assert mode_of(folder / "a.sock") == 0o600


def test_mode_from_the_first_moment(
    folder: Path, umask: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket has mode 0600 already when it is bound, before anybody could connect."""
    umask(0)
    seen = []
    bind = socket.socket.bind

    def spy(sock: socket.socket, place: Any) -> None:
        bind(sock, place)
        seen.append(mode_of(folder / "a.sock"))

    monkeypatch.setattr(socket.socket, "bind", spy)
    with listen(f"unix:{folder}/a.sock"):
        assert seen == [0o600]


def test_default_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a path the socket lies in a folder of mode 0700 in XDG_RUNTIME_DIR, each in a file of its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with listen("unix:") as one, listen("unix:") as two:
        assert one.uri != two.uri
        assert one.uri.startswith(f"unix:{folder}/bowstring/{os.getpid()}-")
        assert mode_of(folder / "bowstring") == 0o700
    assert os.listdir(folder / "bowstring") == []


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_runtime_dir_that_others_may_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """XDG_RUNTIME_DIR in which others may rename our folder is refused by its name; the sticky bit forbids that."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    folder.chmod(mode)
    with pytest.raises(UsageError, match=rf"other users can replace.*{folder}.*XDG_RUNTIME_DIR"):
        listen("unix:")
    assert os.listdir(folder) == []
    folder.chmod(0o1000 | mode)
    with listen("unix:") as listener:
        assert listener.uri.startswith(f"unix:{folder}/bowstring/")


@pytest.mark.parametrize("value", [None, "", "relative", "/nowhere", "/proc"])
def test_folder_without_runtime_dir(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Where XDG_RUNTIME_DIR is missing, a private folder among the temporary files stands in."""
    if value is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    if value == "/proc" and os.stat("/proc").st_uid == os.geteuid():
        pytest.skip("as root, /proc is ours")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with listen("unix:") as listener:
        assert listener.uri.startswith(f"unix:{folder}/bowstring-{os.geteuid()}/")


def test_folder_that_cannot_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no private folder can be made, the error says where, and what else to name."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    with pytest.raises(UsageError, match=r"No such file.*missing.*unix:/path"):
        listen("unix:")


@pytest.mark.parametrize("kind", ["open", "link", "file", "foreign"])
def test_folder_that_is_not_private(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A folder that others may enter, own, or put a link in place of, is refused."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    place = folder / "bowstring"
    if kind == "link":
        (folder / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(folder / "elsewhere")
    elif kind == "file":
        place.touch(mode=0o600)
    else:
        place.mkdir(mode=0o755 if kind == "open" else 0o700)
    if kind == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(place, 65534, 65534)
    with pytest.raises(UsageError):
        listen("unix:")


def test_path_length(folder: Path) -> None:
    """Of paths of more than 107 bytes names of more than 80 are refused in words, on both sides."""
    room = max(107 - len(os.fsencode(folder)) - 1, 80)
    with listen(f"unix:{folder}/{'x' * room}") as listener:
        dial(listener.uri).close()
    with pytest.raises(UsageError, match=r"at most 80 bytes.*more than 107"):
        listen(f"unix:{folder}/{'x' * (room + 1)}")
    with pytest.raises(UsageError, match=r"at most 80 bytes.*more than 107"):
        dial(f"unix:{folder}/{'x' * (room + 1)}")


@pytest.mark.parametrize("name", [1, 80])
@pytest.mark.parametrize("length", [107, 108, 109, 255, 1000, 3900])
def test_long_paths(folder: Path, length: int, name: int) -> None:
    """A socket in a folder of any depth has mode 0600, its whole path as address, and leaves nothing behind."""
    room = length - len(os.fsencode(folder)) - name - 2
    levels = [min(200, room - at) for at in range(0, room, 201)]
    deep = folder.joinpath(*("d" * each for each in levels))
    deep.mkdir(parents=True, exist_ok=True)
    path = deep / ("x" * name)
    with listen(f"unix:{path}") as listener:
        assert listener.uri == f"unix:{path}"
        assert mode_of(path) == 0o600
        with dial(listener.uri):
            there = listener.accept(PATIENCE)
            assert there is not None
            there.close()
        with pytest.raises(UsageError, match="listening there already"):
            listen(listener.uri)
    assert os.listdir(deep) == []
    with pytest.raises(BrokenError):
        dial(listener.uri)
    with contextlib.chdir(deep):
        abandoned(Path(path.name))
    with listen(f"unix:{path}"):
        dial(f"unix:{path}").close()


def test_long_paths_without_proc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no /proc a long path is refused by its length, on both sides."""
    isdir = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self/fd" and isdir(path))
    for act in (listen, dial):
        with pytest.raises(UsageError, match="at most 107 bytes"):
            act(f"unix:{folder}/{'d' * 100}/a.sock")


def test_a_long_folder_is_not_there(folder: Path) -> None:
    """A long path into a folder that is not there, or into a file, fails as a short one does."""
    (folder / ("f" * 100)).touch()
    for name in ("d", "f"):
        with pytest.raises(UsageError, match="folder"):
            listen(f"unix:{folder}/{name * 100}/a.sock")
        with pytest.raises(BrokenError, match="nobody listens"):
            dial(f"unix:{folder}/{name * 100}/a.sock")


def abandoned(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()


def test_abandoned_socket_is_replaced(folder: Path) -> None:
    """A file that an ended server left behind does not stand in the way."""
    abandoned(folder / "a.sock")
    with pytest.raises(BrokenError):
        dial(f"unix:{folder}/a.sock")
    with listen(f"unix:{folder}/a.sock") as listener:
        assert mode_of(folder / "a.sock") == 0o600
        dial(listener.uri).close()
    assert os.listdir(folder) == []


def test_what_is_in_the_way(folder: Path) -> None:
    """A file of another kind is never removed, nor is a folder missing or a name given twice accepted."""
    (folder / "a.sock").write_text("mine")
    with pytest.raises(UsageError):
        listen(f"unix:{folder}/a.sock")
    assert (folder / "a.sock").read_text() == "mine"
    with pytest.raises(UsageError):
        listen(f"unix:{folder}/missing/a.sock")
    with pytest.raises(BrokenError):
        dial(f"unix:{folder}/missing/a.sock")
    with pytest.raises(BrokenError):
        dial(f"unix:{folder}/a.sock")
    with pytest.raises(UsageError):
        dial("unix:")


def test_living_server_is_not_replaced(folder: Path) -> None:
    """A server whose queue of connections is full lives too."""
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(folder / "a.sock"))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(folder / "a.sock"))
            with pytest.raises(UsageError):
                listen(f"unix:{folder}/a.sock")
            with pytest.raises(DeadlineExceeded):
                dial(f"unix:{folder}/a.sock", deadline=SOON)


def test_one_of_many_gets_the_name(folder: Path) -> None:
    """Of servers that start at once on one abandoned name, one gets it and the others are told."""
    abandoned(folder / "a.sock")
    barrier = threading.Barrier(8)

    def start() -> object:
        barrier.wait(PATIENCE)
        try:
            return listen(f"unix:{folder}/a.sock")
        except UsageError:
            return None

    started = [thread.result() for thread in [in_thread(start) for _ in range(8)]]
    listeners = [listener for listener in started if listener is not None]
    assert len(listeners) == 1
    dial(listeners[0].uri).close()
    listeners[0].close()


def test_only_its_own_file_is_removed(folder: Path) -> None:
    """Closing leaves a file alone that has taken the name since."""
    listener = listen(f"unix:{folder}/a.sock")
    os.unlink(folder / "a.sock")
    (folder / "a.sock").write_text("another's")
    listener.close()
    assert (folder / "a.sock").read_text() == "another's"
    gone = listen(f"unix:{folder}/b.sock")
    os.unlink(folder / "b.sock")
    gone.close()


def renewed(listener: Listener) -> bool:
    """Whether a listener can be dialled after it has looked."""
    assert listener.accept(0.0) is None
    try:
        dial(listener.uri).close()
    except BrokenError:
        return False
    there = listener.accept(PATIENCE)
    assert there is not None
    there.close()
    return True


@pytest.mark.parametrize(
    "gone", ["file", "folder", "renamed folder", "abandoned", "taken", "no place", "open"]
)
@pytest.mark.parametrize("default", [False, True], ids=["named", "default"])
def test_a_file_that_is_gone_is_made_anew(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gone: str,
    default: bool,
) -> None:
    """A server whose file or folder was removed makes both anew where that is safe; it logs that, or why not."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    parent = folder / "bowstring"
    parent.mkdir(mode=0o700)
    with listen("unix:" if default else f"unix:{parent}/a.sock") as listener:
        path = Path(listener.uri.removeprefix("unix:"))
        assert renewed(listener)
        assert not caplog.records
        if gone == "renamed folder":
            parent.rename(folder / "former")
        else:
            path.unlink()
        if gone in ("folder", "no place", "open"):
            parent.rmdir()
        if gone == "abandoned":
            abandoned(path)
        elif gone == "taken":
            path.write_text("another's")
        elif gone == "no place":
            parent.write_text("another's")
        elif gone == "open":
            parent.mkdir()
            parent.chmod(0o777)
        safe = gone not in ("taken", "no place") and not (gone == "open" and default)
        assert renewed(listener) == renewed(listener) == safe
        assert [each.levelname for each in caplog.records] == ["WARNING" if safe else "ERROR"]
        assert str(path) in caplog.text
        if safe:
            assert mode_of(path) == 0o600
            assert mode_of(parent) == (0o777 if gone == "open" else 0o700)
    assert path.exists() == (gone == "taken")


def test_servers_whose_folder_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several servers in one folder that somebody removes, each is there again for its readers."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with listen("unix:") as one, listen("unix:") as two:
        shutil.rmtree(folder / "bowstring")
        assert renewed(one)
        assert renewed(two)


def test_locked_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that somebody keeps locked ends the wait by its deadline."""
    monkeypatch.setattr(socket_file, "lock", lambda fd, _: lock(fd, SOON))
    with socket_file._folder_locked(str(folder)), pytest.raises(DeadlineExceeded):
        listen(f"unix:{folder}/a.sock")
    listen(f"unix:{folder}/a.sock").close()


def test_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets of killed servers go from the private folder; other files and living servers' stay."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    place = folder / "bowstring"
    with listen("unix:") as living:
        gone = 2**22 + 5  # beyond the largest process number
        abandoned(place / f"{gone}-{'0' * 12}.sock")
        abandoned(place / f"{os.getpid()}-{'0' * 12}.sock")
        abandoned(place / "named.sock")
        (place / f"{gone}-{'1' * 12}.sock").write_text("no socket")
        listen("unix:").close()
        names = {f"{os.getpid()}-{'0' * 12}.sock", "named.sock", f"{gone}-{'1' * 12}.sock"}
        assert set(os.listdir(place)) == {*names, os.path.basename(living.uri)}
        dial(living.uri).close()


AS_NOBODY = """
import os, socket, sys
path, role = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
if role == "client":
    try:
        sock.connect(path)
        print(repr(sock.recv(1)), flush=True)
    except PermissionError:
        print("denied", flush=True)
else:
    os.umask(0)
    sock.bind(path)
    sock.listen()
    print("listening", flush=True)
    sys.stdin.read()
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@needs_root
def test_another_user_is_turned_away(folder: Path, spawn: Spawn) -> None:
    """Another user cannot connect; where the file's mode was loosened, the kernel's word on the user decides."""
    with listen(f"unix:{folder}/a.sock") as listener:
        process = spawn(AS_NOBODY, str(folder / "a.sock"), "client")
        assert process.stdout is not None
        assert process.stdout.readline() == b"denied\n"
        os.chmod(folder / "a.sock", 0o666)
        process = spawn(AS_NOBODY, str(folder / "a.sock"), "client")
        with pytest.raises(AccessDenied):
            listener.accept(PATIENCE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"b''\n"
        with dial(listener.uri), listener.accept(PATIENCE) as channel:  # type: ignore[union-attr]  # it waits
            assert channel.peer.uid == os.geteuid()


@needs_root
def test_another_users_server_is_not_believed(folder: Path, spawn: Spawn) -> None:
    """A client leaves a server that runs as another user, root's too."""
    os.chmod(folder, 0o777)
    process = spawn(AS_NOBODY, str(folder / "a.sock"), "server")
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    with pytest.raises(AccessDenied):
        dial(f"unix:{folder}/a.sock")


NO_ROOM = """
import os, resource, sys
from bowstring.errors import LimitExceeded
from bowstring.transport import dial, listen
with listen(sys.argv[1]) as listener:
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, 4096))
    assert listener.accept(0.05) is None, "nobody is there"
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    waiting = dial(listener.uri)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, 4096))
    try:
        listener.accept(20.0)
    except LimitExceeded:
        print("refused", flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    listener.accept(20.0).close()
    waiting.close()
    print("accepted", flush=True)
"""


@pytest.mark.parametrize("address", ["unix:", "tcp://"])
def test_no_descriptor_for_a_connection(spawn: Spawn, address: str) -> None:
    """A listener without a descriptor to spare says so, and takes the waiting connection later."""
    process = spawn(NO_ROOM, address)
    assert process.stdout is not None
    assert process.stdout.readline() == b"refused\n"
    assert process.stdout.readline() == b"accepted\n"


def test_errors_name_the_reason(folder: Path) -> None:
    """The cause of a refusal is the operating system's own error."""
    abandoned(folder / "a.sock")
    with pytest.raises(BrokenError) as caught:
        dial(f"unix:{folder}/a.sock")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ECONNREFUSED
