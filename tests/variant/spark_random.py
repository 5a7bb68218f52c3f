"""Random values for Spark's casts: of every type that it knows, and text that is nearly something else."""

from __future__ import annotations

import decimal
import random
import struct
import uuid
from typing import Any, Final

from bowstring.variant.codec.primitives import Value

_D = decimal.Decimal
DIGITS: Final = {"decimal4": 9, "decimal8": 18, "decimal16": 38}
_KINDS: Final = [
    *(
        "null",
        "boolean",
        "int8",
        "int16",
        "int32",
        "int64",
        "double",
        "float",
        "decimal4",
        "decimal8",
        "decimal16",
    ),
    *(
        "date",
        "timestamp",
        "timestamp_ntz",
        "binary",
        "string",
        "string",
        "string",
        "uuid",
        "object",
        "array",
    ),
]
_FRACTIONS: Final = ("", ".5", ".123456", ".1234567")
_ZONES: Final = ("", "Z", " UTC", "+01:00", "-8:30", "+18:00", " GMT+2", "+010203")


def random_value(drawn: random.Random, depth: int = 0) -> Value:
    """Return a random value of a type that Spark knows."""
    kind = drawn.choice(_KINDS if depth < 3 else _KINDS[:-2])
    if kind == "object":
        names = drawn.sample(["a", "b", "c", "", "é", "😀"], drawn.randrange(4))
        return Value("object", {name: random_value(drawn, depth + 1) for name in names})
    if kind == "array":
        return Value("array", [random_value(drawn, depth + 1) for _ in range(drawn.randrange(4))])
    return Value(kind, _random_leaf(kind, drawn))


def _random_leaf(kind: str, drawn: random.Random) -> Any:
    whole = drawn.getrandbits(drawn.randrange(1, 64)) * drawn.choice((1, -1))
    if kind in ("null", "boolean"):
        return None if kind == "null" else drawn.random() < 0.5
    if kind.startswith("int"):
        return whole >> 64 - int(kind[3:])
    if kind == "double":
        return drawn.choice((struct.unpack("<d", drawn.randbytes(8))[0], whole / 1000.0, float(whole)))
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", drawn.choice((whole / 1000.0, drawn.uniform(-1, 1)))))[0]
    if kind.startswith("decimal"):
        digits = drawn.randrange(1, DIGITS[kind] + 1)
        return _D(drawn.randrange(10**digits) * drawn.choice((1, -1))).scaleb(
            -drawn.randrange(DIGITS[kind] + 1)
        )
    if kind == "date":
        return drawn.choice((whole >> 32, drawn.randrange(-720_000, 3_000_000)))
    if kind.startswith("timestamp"):
        return drawn.choice((whole, drawn.randrange(-63 * 10**15, 254 * 10**15)))
    if kind == "binary":
        return drawn.choice((drawn.randbytes(drawn.randrange(20)), _random_text(drawn).encode()))
    return uuid.UUID(bytes=drawn.randbytes(16)) if kind == "uuid" else _random_text(drawn)


def _random_text(drawn: random.Random) -> str:
    """Return text that is nearly a number, a date or a time, or none of them."""
    number = drawn.getrandbits(drawn.randrange(1, 80)) * drawn.choice((1, -1))
    text = drawn.choice(
        (
            str(number),
            f"{number / 1000}",
            f"{drawn.uniform(-1, 1) * 10.0 ** drawn.randrange(-320, 309)!r}",
            f"{number}.{drawn.randrange(10**9)}e{drawn.randrange(-50, 50)}",
            f"{drawn.randrange(10000):04}-{drawn.randrange(14):02}-{drawn.randrange(33):02}",
            _random_time(drawn),
            drawn.choice(("true", "FALSE", "Inf", "-nan", "no", "T", "", "ü😀", "null")),
        )
    )
    place = drawn.randrange(len(text) + 1)
    damage = drawn.choice(("", "", "", "", " ", "x", "\n", "0", "-", "+", ".", "e", "\x00", "d", "１"))
    return text[:place] + damage + text[place:]


def _random_time(drawn: random.Random) -> str:
    return (
        f"{drawn.randrange(1, 3000)}-{drawn.randrange(1, 13)}-{drawn.randrange(1, 29)}"
        f"{drawn.choice(' T')}{drawn.randrange(25)}:{drawn.randrange(61)}:{drawn.randrange(61)}"
        f"{drawn.choice(_FRACTIONS)}{drawn.choice(_ZONES)}"
    )
