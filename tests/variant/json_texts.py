"""JSON texts for the tests of from_json: right ones of every kind, and what chance makes of them."""

from __future__ import annotations

import json
import random

KEYS = ("a", "b", "id", "name", "ä", "😀", "", "x" * 70, "\uffe5", 'q"t', "k\n", "long_key_name")
PIECES = ("a", "bc", "é", "中", "😀", "\\", '"', "\n", "\x1f", "/", "\x7f", " ", "hello world ")
SNIPPETS = b'{}[],:"\\0123456789.eE-+tfn u\x00\xff\xc3'
EXPONENTS = (0, 1, 5, 22, 23, 300, 308, 309, 324, 345, 400)


def digits(drawn: random.Random, most: int) -> str:
    return "".join(drawn.choice("0123456789") for _ in range(drawn.randint(1, most)))


def number(drawn: random.Random) -> str:
    """Return a number: small, long, with a point, with an exponent, at the bounds of the types."""
    sign = drawn.choice(("", "-"))
    whole = str(drawn.randint(0, 10 ** drawn.randint(0, 45)))
    kind = drawn.randrange(5)
    if kind == 0:
        return sign + str((1 << drawn.choice((7, 8, 15, 31, 63, 64))) + drawn.randint(-2, 2))
    if kind == 1:
        return sign + whole
    if kind == 2:
        return f"{sign}{whole}.{digits(drawn, 45)}"
    if kind == 3:
        return f"{sign}0.{'0' * drawn.randint(0, 40)}{digits(drawn, 3)}"
    exponent = drawn.choice((*EXPONENTS, drawn.randint(0, 330)))
    return (
        f"{sign}{whole}{drawn.choice(('', '.5', '.' + digits(drawn, 25)))}"
        f"{drawn.choice('eE')}{drawn.choice(('', '+', '-'))}{exponent}"
    )


def string(drawn: random.Random) -> str:
    """Return a string with and without escapes, shorter and longer than a short string of Variant."""
    pieces = drawn.choices(PIECES, k=drawn.choice((0, 1, 2, 5, 12, 30)))
    return json.dumps("".join(pieces), ensure_ascii=drawn.random() < 0.5)


def blanks(drawn: random.Random) -> str:
    return drawn.choice(("", "", "", " ", "\n\t ", "  \r"))


def text(drawn: random.Random, depth: int = 0) -> str:
    """Return a JSON text; an object has a key twice now and then."""
    kind = drawn.random()
    if depth > 4 or kind < 0.5:
        return (
            drawn.choice((number, string))(drawn) if kind < 0.4 else drawn.choice(("null", "true", "false"))
        )
    count = drawn.choice((0, 1, 2, 3, 5, 30) if depth < 2 else (0, 1, 2, 3))
    inside = []
    for _ in range(count):
        key = json.dumps(drawn.choice(KEYS), ensure_ascii=drawn.random() < 0.5)
        name = f"{key}{blanks(drawn)}:{blanks(drawn)}" if kind > 0.75 else ""
        inside.append(blanks(drawn) + name + text(drawn, depth + 1) + blanks(drawn))
    opening, closing = "{}" if kind > 0.75 else "[]"
    return opening + (",".join(inside) or blanks(drawn)) + closing


def changed(drawn: random.Random, good: bytes) -> bytes:
    """Return a text with a few bytes changed, left out, put in or doubled."""
    bad = bytearray(good)
    for _ in range(drawn.choice((1, 1, 2, 3))):
        at = drawn.randrange(len(bad) + 1)
        kind = drawn.randrange(5)
        if kind == 0:
            bad[at : at + 1] = bytes([drawn.randrange(256)])
        elif kind == 1:
            bad[at:at] = bytes([drawn.choice(SNIPPETS)])
        elif kind == 2:
            del bad[at : at + 1]
        elif kind == 3:
            del bad[at:]
        else:
            bad[at:at] = bad[at : at + drawn.randint(1, 8)]
    return bytes(bad)


def column(seed: int, rows: int) -> list[bytes | None]:
    """Return texts, half of them changed, and a few nulls."""
    drawn = random.Random(seed)
    made: list[bytes | None] = []
    for _ in range(rows):
        good = (blanks(drawn) + text(drawn) + blanks(drawn)).encode()
        made.append(changed(drawn, good) if drawn.random() < 0.5 else good)
        if drawn.random() < 0.03:
            made.append(None)
    return made
