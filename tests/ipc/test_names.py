"""The names of pyarrow.ipc: each is here, and what it is called with there it can be called with here."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from tests.ipc.files import SAMPLE, by_pyarrow

EMPTY: Final = inspect.Parameter.empty
DIFFERENT: Final = {
    # Our readers of files are RecordBatchReaders, too; those that read in turn have these.
    "RecordBatchReader.iter_batches_with_custom_metadata",
    "RecordBatchReader.read_next_batch",
    "RecordBatchReader.read_next_batch_with_custom_metadata",
}


def public(thing: Any) -> list[str]:
    """Return the names of a module or a class of pyarrow that are its own."""
    inherited = {*dir(object), *dir(int), *dir(tuple)}
    return [
        name
        for name in dir(thing)
        if not name.startswith("_") and name not in inherited and not is_module(getattr(thing, name))
    ]


def is_module(thing: Any) -> bool:
    """Whether a name is there only because pyarrow imports it."""
    return isinstance(thing, types.ModuleType)


def parameters(thing: Any) -> list[inspect.Parameter] | None:
    """Return the parameters of a function or class; of compiled ones as their documentation begins with them."""
    try:
        found = list(inspect.signature(thing).parameters.values())
    except ValueError:
        said = re.match(r"\w+\((.*)\)$", (thing.__doc__ or "").split("\n")[0])
        return None if said is None else [*_spelled(said.group(1))]
    return [each for each in found if each.name != "self"]


def _spelled(text: str) -> list[inspect.Parameter]:
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = []
    for piece in filter(None, text.split(", ")):
        if piece == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            name, _, default = piece.partition("=")
            found.append(inspect.Parameter(name.split()[-1], kind, default=default or EMPTY))
    return found


def lacking(theirs: list[inspect.Parameter], ours: list[inspect.Parameter]) -> list[str]:
    """Return which parameters of theirs ours cannot take in the same way, and which of ours they would not give."""
    found = []
    by_name = {each.name: (place, each) for place, each in enumerate(ours)}
    for place, their in enumerate(theirs):
        if their.kind is their.VAR_KEYWORD:
            continue
        ours_at, our = by_name.pop(their.name, (-1, their))
        is_positional = their.kind is their.POSITIONAL_OR_KEYWORD
        if ours_at < 0 or (is_positional and (ours_at != place or our.kind is our.KEYWORD_ONLY)):
            found.append(their.name)
        elif (their.default is EMPTY) is not (our.default is EMPTY):
            found.append(f"default of {their.name}")
    return found + [
        name
        for name, (_, our) in by_name.items()
        if our.default is EMPTY and our.kind not in (our.VAR_KEYWORD, our.VAR_POSITIONAL)
    ]


def differences() -> set[str]:
    """Return the names of pyarrow.ipc, and of what its classes have, that ours do not stand for."""
    found = set()
    for name in public(pa.ipc):
        theirs, ours = getattr(pa.ipc, name), getattr(ipc, name, None)
        if ours is None:
            found.add(name)
            continue
        pairs = [(name, theirs, ours)]
        if inspect.isclass(theirs):
            for each in public(theirs):
                if hasattr(ours, each) or hasattr(_instance(name), each):
                    pairs.append((f"{name}.{each}", getattr(theirs, each), getattr(ours, each, None)))
                else:
                    found.add(f"{name}.{each}")
        for full, their, our in pairs:
            wanted = parameters(their) if callable(their) else None
            if wanted:
                found |= {f"{full}({each})" for each in lacking(wanted, parameters(our) or [])}
    return found


def _instance(name: str) -> Any:
    if name == "RecordBatchFileReader":
        return ipc.open_file(by_pyarrow(SAMPLE, kind="file"))
    return None


def test_all_names_of_pyarrow_are_here() -> None:
    """Each public name of pyarrow.ipc, of its classes and of their arguments is ours, but for those listed."""
    assert differences() == DIFFERENT


def test_members_have_the_numbers_of_pyarrow() -> None:
    """The metadata versions and the alignments are named and numbered as in pyarrow."""
    for name in ("MetadataVersion", "Alignment"):
        theirs, ours = getattr(pa.ipc, name), getattr(ipc, name)
        assert {each.name: int(each) for each in ours} == {each.name: int(each) for each in theirs}


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_memory_comes_from_the_pool_and_goes_back(kind: str, codec: str | None) -> None:
    """Bodies of files and decompressed buffers are the pool's, which lives as long as they do."""
    table = pa.table({"a": np.arange(100_000) // 100, "b": [str(number // 100) for number in range(100_000)]})
    written = by_pyarrow([*table.to_batches(10_000)], kind=kind, compression=codec)
    source: Any = written if codec else pa.PythonFile(pa.BufferReader(written), "r")
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.total_allocated_bytes()
    for use_threads in (True, False):
        if codec is None:
            source.seek(0)
        open_ = ipc.open_stream if kind == "stream" else ipc.open_file
        options = ipc.IpcReadOptions(use_threads=use_threads)
        batches = list(open_(source, memory_pool=pool, options=options))
        assert pool.bytes_allocated() >= table.nbytes * 0.9
        exported = [batch.to_arrow() for batch in batches]
        del batches
        assert pa.Table.from_batches(exported).equals(table)
        assert pool.bytes_allocated() >= table.nbytes * 0.9
        del exported
        assert pool.bytes_allocated() == 0
    kept = next(
        iter(open_(written if codec else pa.PythonFile(pa.BufferReader(written), "r"), memory_pool=pool))
    )
    del pool
    assert kept.to_arrow().equals(table.to_batches(10_000)[0])
    del kept
    assert pa.total_allocated_bytes() <= before
