"""The end of a stream is a `StopIteration`, which Python makes a `RuntimeError` where it leaves a generator."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow

ROOT = Path(__file__).parents[2]
ENDING = {"read_next_batch", "read_next_message", "read_next_tensor"}
CAUGHT = {"EndOfStream", "StopIteration", "EOFError", "BowstringError", "Exception", "BaseException"}


def ends(call: ast.Call) -> bool:
    """Whether a call may raise the end of a stream."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "next" and len(call.args) == 1
    return isinstance(call.func, ast.Attribute) and call.func.attr in ENDING


def names(node: ast.AST | None) -> set[str]:
    """Return the names in an expression; all that are caught where there is none."""
    if node is None:
        return CAUGHT
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def unguarded(body: list[ast.stmt], *, guarded: bool = False) -> Iterator[ast.Call]:
    """Yield the calls of a generator's body that may let the end of a stream out of it."""
    for statement in body:
        yield from _unguarded(statement, guarded=guarded)


def _unguarded(node: ast.AST, *, guarded: bool) -> Iterator[ast.Call]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return
    if isinstance(node, ast.Call) and ends(node) and not guarded:
        yield node
    inside = guarded
    if isinstance(node, ast.Try):
        caught = any(names(each.type) & CAUGHT for each in node.handlers)
        yield from unguarded(node.body, guarded=guarded or caught)
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _unguarded(rest, guarded=guarded)
        return
    if isinstance(node, ast.With):
        inside = guarded or any("suppress" in ast.unparse(each) for each in node.items)
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child, guarded=inside)


def generators(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield the generators of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(each, ast.Yield | ast.YieldFrom) for each in own(node)
        ):
            yield node


def own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield what a function consists of, without functions inside of it."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def test_no_generator_lets_the_end_of_a_stream_out() -> None:
    """Each generator of ours catches the end of what it reads."""
    leaks = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for function in generators(ast.parse(path.read_text("utf-8")))
        for call in unguarded(function.body)
    ]
    assert not leaks


@pytest.mark.parametrize(
    ("body", "leaks"),
    [
        ("yield s.read_next_batch()", 1),
        ("for each in s: yield next(each)", 1),
        ("yield next(each, None)", 0),
        ("try:\n  yield next(s)\n except EndOfStream:\n  return", 0),
        ("try:\n  yield next(s)\n finally:\n  s.close()", 1),
        ("with suppress(StopIteration):\n  yield next(s)", 0),
        ("def inside(): return next(s)\n yield inside", 0),
    ],
)
def test_what_would_leak(body: str, leaks: int) -> None:
    """The test above sees what is not caught, and only that."""
    [function] = generators(ast.parse(f"def made(s):\n {body}"))
    assert len(list(unguarded(function.body))) == leaks


def test_a_generator_of_the_user_s() -> None:
    """A `for` over a stream ends; who asks by hand inside a generator gets Python's error, unless it is caught."""

    def by_hand(stream: bow.Stream) -> Iterator[int]:
        while True:
            yield stream.read_next_batch().num_rows

    with bow.Server() as server:
        endpoint = server.publish("n", [pa.record_batch({"n": [1, 2]})] * 3)
        assert [batch.num_rows for batch in bow.connect(endpoint)] == [2, 2, 2]
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(by_hand(bow.connect(endpoint)))
        with bow.connect(endpoint) as stream:
            stream.read_all()
            with pytest.raises(StopIteration):
                stream.read_next_batch()
            with pytest.raises(EOFError):
                stream.read_next_batch()
