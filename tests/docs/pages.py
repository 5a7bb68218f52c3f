"""The Python code of the documentation: its blocks, what they need, and a program that runs those of one page.

``python tests/docs/pages.py PAGE [NEED …]`` runs the blocks of a page one after another, as one program, in the
working directory, and compares what they print with the comments behind their calls of ``print``. A block that
calls ``.wait()`` runs beside those that follow, in a process of its own. ``<!-- needs: NAME -->`` before a block
names what it needs besides: without that name among the arguments it is left out. ``gpu`` is a simulated one.
Blocks marked ``py`` need what no test has (a cluster with GPUs) and are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.prepared import PREPARED  # noqa: E402  found by the line above

_BLOCK = re.compile(
    r"^(?:<!-- needs: (?P<need>[\w.]+) -->\n)?```python.*?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_SECONDS = 60.0
READY = "the server waits"
_PORTS = ("4711", "4712")
_FREE = "PORTS_OF_DOCUMENTATION"
"""Names the ports that stand for these, also to the processes that serve beside."""


def _free_ports() -> str:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _PORTS]
        return " ".join(str(each.getsockname()[1]) for each in sockets)


class Block(NamedTuple):
    """One block of a page: the line where its code begins, the code, and what it needs."""

    line: int
    code: str
    need: str

    @property
    def waits(self) -> bool:
        """Whether the block serves until it is ended."""
        return "server.wait()" in self.code

    @property
    def shown(self) -> str:
        """What the page says that the block prints."""
        return "".join(f"{each}\n" for each in re.findall(r"print\(.*\) *# (.*)", self.code))


def pages() -> list[str]:
    """Return the pages that have Python code, by their paths in the repository."""
    folder = ROOT / "docs"
    found = (path for path in sorted(folder.rglob("*.md")) if path.parent.name != "decisions")
    return [str(path.relative_to(ROOT)) for path in found if "```python" in path.read_text("utf-8")]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(text.count("\n", 0, found.start("code")) + 1, found["code"], found["need"] or "")
        for found in _BLOCK.finditer(text)
    ]


def _pattern(shown: str) -> str:
    """Return a pattern of what is printed, where ``…`` stands for anything within a line."""
    return ".*".join(map(re.escape, shown.split("…")))


def _prepare(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PREPARED.get(page, ""), names)
    return names


def _run(page: str, block: Block, names: dict[str, Any]) -> None:
    """Run a block so that an error names the line of its page."""
    code = block.code.replace('"cuda:0"', "device") if block.need == "gpu" else block.code
    for port, free in zip(_PORTS, os.environ[_FREE].split(), strict=True):
        code = code.replace(port, free)
    exec(compile("\n" * (block.line - 1) + code, page, "exec"), names)


def _serve(page: str, number: int) -> None:
    """Run a block that waits; say on stdout when it does."""
    import bowstring as bow

    wait = bow.Server.wait

    def announced(server: bow.Server, timeout: float | None = None) -> bool:
        sys.__stdout__.write(f"{READY}\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return wait(server, _SECONDS)

    bow.Server.wait = announced  # type: ignore[method-assign, assignment]
    _run(page, blocks(page)[number], _prepare(page))


@contextlib.contextmanager
def _beside(page: str, number: int) -> Iterator[None]:
    call = [sys.executable, "-W", "error::UserWarning", __file__, page, "--serve", str(number)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            if READY not in (said := server.stdout.readline()):
                raise AssertionError(f"{page}, block {number}, does not wait: {said}")
            yield
        finally:
            server.terminate()


def main(page: str, *needs: str) -> None:
    """Run the blocks of a page."""
    os.environ[_FREE] = _free_ports()
    with contextlib.ExitStack() as running:
        names = _prepare(page)
        for number, block in enumerate(blocks(page)):
            if block.need and block.need not in needs:
                continue
            if block.waits:
                running.enter_context(_beside(page, number))
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                _run(page, block, names)
            if block.shown and not re.fullmatch(_pattern(block.shown), printed.getvalue()):
                raise AssertionError(
                    f"{page}:{block.line} shows {block.shown!r} and prints {printed.getvalue()!r}"
                )
        if finish := names.get("finish"):
            finish()


if __name__ == "__main__":
    if sys.argv[2:3] == ["--serve"]:
        _serve(sys.argv[1], int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
