"""Paths into a Variant: ``$.a.b[0]['x.y']["z"][-1][*]``, or a list of steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Final, NoReturn

from bowstring.errors import UsageError

Step = str | int
Path = tuple[Step, ...]
AnyStep = Step | EllipsisType
"""A step, or ``...`` for each element of an array."""
AnyPath = tuple[AnyStep, ...]

_ESCAPES: Final = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "/": "/",
}
_LARGEST: Final = (1 << 32) - 1
_HINT: Final = "Quote names that hold . or [: $['a.b']; or give the steps as a list."


def parse_path(path: str | Sequence[AnyStep]) -> AnyPath:
    r"""Return the steps of a path: names of fields, and indices of elements.

    Parameters
    ----------
    path
        ``$`` is optional. A name stands after a dot, up to the next dot or bracket, or in brackets and quotes,
        where a backslash escapes quotes, itself, and what JSON escapes (``\n``, ``\u00e9`` …). An index stands in
        brackets; ``[-1]`` is the last element, and ``[*]`` each. A list of steps is taken as it is: strings are
        names, whole numbers indices, and ``...`` is each element.

    Raises
    ------
    UsageError
        It is not a path; the message points at the character.

    Examples
    --------
    >>> parse_path("$.user['first.name'][0]")
    ('user', 'first.name', 0)
    >>> parse_path(["a.b", 2]), parse_path("$"), parse_path("$.items[*].prices[-1]")
    (('a.b', 2), (), ('items', Ellipsis, 'prices', -1))
    """
    if isinstance(path, bytes | bytearray) or not isinstance(path, Iterable):
        raise UsageError("not a path", expected="a string, or a list of steps", found=repr(path))
    if not isinstance(path, str):
        return tuple(_step(step, place) for place, step in enumerate(path))
    return _Parser(path).steps()


def single_path(path: str | Sequence[AnyStep], call: str) -> Path:
    """Return the steps of a path that leads to one value of each row: without ``[*]``."""
    head, *rest = divided(parse_path(path))
    if rest:
        raise UsageError(
            f"{call}() takes a path to one value",
            expected="no [*]",
            found=str(path),
            hint='Use get() of the path with "variant" as the type, which gives lists, or an index such as [0].',
        )
    return head


def divided(path: AnyPath) -> list[Path]:
    """Return the paths before, between and behind the steps ``...`` of a path."""
    found: list[list[Step]] = [[]]
    for step in path:
        if isinstance(step, EllipsisType):
            found.append([])
        else:
            found[-1].append(step)
    return [tuple(each) for each in found]


def _step(step: object, place: int) -> AnyStep:
    if isinstance(step, str):
        return _text(step, f"step {place}")
    if step is ...:
        return ...
    if isinstance(step, bool) or not isinstance(step, int) or not -_LARGEST <= step <= _LARGEST:
        raise UsageError(
            "a step of a path is a name or an index",
            expected="a string, less than 2^32, or ...",
            found=repr(step),
            where=f"step {place}",
        )
    return int(step)


def _text(name: str, where: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError("a name is not Unicode text", found=repr(name), where=where) from None
    return name


class _Parser:
    """A path as text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def steps(self) -> AnyPath:
        found: list[AnyStep] = []
        if self.text.startswith("$"):
            self.at = 1
        elif self.text and self.text[0] not in ".[":
            found.append(self.name())
        elif not self.text:
            self.refuse("an empty path", "$, or a step")
        while self.at < len(self.text):
            if self.text[self.at] == ".":
                self.at += 1
                found.append(self.name())
            elif self.text[self.at] == "[":
                self.at += 1
                found.append(self.bracket())
            else:
                self.refuse("no step begins here", ". or [")
        return tuple(found)

    def name(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ".[":
            if self.text[self.at] in "]'\"":
                self.refuse("a name holds what must be quoted", "a letter, . or [")
            self.at += 1
        if self.at == start:
            self.refuse("a name is empty", "a name")
        return _text(self.text[start : self.at], f"character {start}")

    def bracket(self) -> AnyStep:
        first = self.text[self.at : self.at + 1]
        step: AnyStep = ...
        if first == "*":
            self.at += 1
        else:
            step = self.quoted() if first in ("'", '"') else self.index()
        if self.text[self.at : self.at + 1] != "]":
            self.refuse("a bracket is not closed", "]")
        self.at += 1
        return step

    def index(self) -> int:
        begin = self.at
        negative = self.text[begin : begin + 1] == "-"
        self.at += negative
        start = self.at
        while self.text[self.at : self.at + 1] in tuple("0123456789"):
            self.at += 1
        if self.at == start:
            self.refuse("neither an index nor a quoted name", "digits, *, ' or \"")
        # Anything longer is out of range, and slow to convert.
        index = int(self.text[start : self.at]) if self.at - start <= 20 else _LARGEST + 1
        if index > _LARGEST:
            self.at = begin
            self.refuse("an index is too large", f"at most {_LARGEST}")
        return -index if negative else index

    def quoted(self) -> str:
        quote, start = self.text[self.at], self.at
        self.at += 1
        letters: list[str] = []
        while self.text[self.at : self.at + 1] != quote:
            if self.at >= len(self.text):
                self.at = start
                self.refuse("a quote is not closed", quote)
            letters.append(self.letter())
        self.at += 1
        # Escaped halves of one character belong together.
        name = "".join(letters).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return _text(name, f"character {start}")

    def letter(self) -> str:
        letter = self.text[self.at]
        self.at += 1
        if letter != "\\":
            return letter
        escape = self.text[self.at : self.at + 1]
        if escape == "u":
            digits = self.text[self.at + 1 : self.at + 5]
            if len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
                self.at += 5
                return chr(int(digits, 16))
        if escape not in _ESCAPES:
            self.refuse("no such escape", "one of \\ ' \" b f n r t / or u and four digits")
        self.at += 1
        return _ESCAPES[escape]

    def refuse(self, what: str, expected: str) -> NoReturn:
        found = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
        pointer = f"character {self.at} of\n    {self.text}\n    {' ' * self.at}^\n"
        raise UsageError(what, expected=expected, found=found, where=pointer, hint=_HINT)
