"""Count words that readers stumble over, by room; `make lint` runs it, and no count may rise.

Looked at are docstrings, comments, messages (texts of several words) and pages. The counts of each room that are
allowed stand in ``scripts/words.txt``; ``--update`` writes them down anew, and ``--show ROOM`` prints the places.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ALLOWED: Final = Path(__file__).with_name("words.txt")
PATTERNS: Final = {
    # Programs are not people: name the client, the reader, the caller.
    "whoever, he": r"\b([Ww]hoever|[Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b",
    # A path, a connection, a listener.
    "roads": r"\b([Rr]oads?|[Dd]oors?)\b",
    # Name the message: the reply, the hello, the error.
    "said": r"\b([Ss]aid|[Tt]old|[Uu]nsaid)\b",
    # "A deadline that is none" is no deadline; "is no number" is not a number.
    "none": r"(?<![Tt]here )\b(is|are|was|were) none\b",
    "is no": r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|more\b)[a-z]",
}
_WORDS: Final = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS.values()))
# They speak of former times, and of these words.
_NOT_PROSE: Final = ("docs/decisions/", "scripts/words.py")
# Names of the code in prose stand in backticks.
_MARKED: Final = re.compile(r"`[^`]*`")


def places(root: Path = ROOT) -> Iterator[tuple[str, str, int, str]]:
    """Yield room, file, line and text of each place."""
    for file in _files(root):
        name = file.relative_to(root).as_posix()
        prose = _prose_of_python if file.suffix == ".py" else _prose_of_page
        for line, text in prose(file.read_text()):
            for _ in _WORDS.finditer(_MARKED.sub("", text)):
                yield _room(name), name, line, text.strip()


def _files(root: Path) -> Iterator[Path]:
    for top in ("src", "kernels", "benchmarks", "scripts", "docs", "examples", "README.md"):
        if top.endswith(".md"):
            yield root / top
        for folder, _, names in os.walk(root / top):  # follows no link
            files = sorted(Path(folder, name) for name in names if name.endswith((".py", ".md")))
            yield from (
                file for file in files if not file.relative_to(root).as_posix().startswith(_NOT_PROSE)
            )


def _room(name: str) -> str:
    parts = name.split("/")
    if parts[0] == "src":
        return parts[2] if len(parts) > 3 else "bowstring"
    return parts[0]


def _prose_of_page(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are not in blocks of code."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def _prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    r"""Yield comments, and the lines of texts that hold a blank: docstrings and messages.

    >>> list(_prose_of_python('raise E("no such name")  # as it is\n'))
    [(1, '# as it is'), (1, 'no such name')]
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for number, line in enumerate(node.value.splitlines()):
                if not line.lstrip().startswith((">>>", "...")):
                    yield node.lineno + number, line


def allowed() -> dict[str, int]:
    """Return how many places each room may have."""
    lines = ALLOWED.read_text().splitlines()
    return {room: int(count) for room, _, count in (line.partition(" ") for line in lines)}


def main() -> int:
    """Compare the counts with what is allowed; 1 where a room has more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--show", metavar="ROOM", help="print the places of a room")
    parser.add_argument("--update", action="store_true", help="allow what there is now")
    chosen = parser.parse_args()
    found = list(places())
    counts = Counter(room for room, *_ in found)
    if chosen.show is not None:
        print(
            *(f"{name}:{line}: {text}" for room, name, line, text in found if room == chosen.show), sep="\n"
        )
        return 0
    if chosen.update:
        ALLOWED.write_text("".join(f"{room} {count}\n" for room, count in sorted(counts.items())))
        return 0
    limits = allowed()
    more = {room: count for room, count in counts.items() if count > limits.get(room, 0)}
    for room, count in more.items():
        print(
            f"{room}: {count} words that readers stumble over, {limits.get(room, 0)} are allowed",
            file=sys.stderr,
        )
        print(f"  python scripts/words.py --show {room}", file=sys.stderr)
    return int(bool(more))


if __name__ == "__main__":
    sys.exit(main())
