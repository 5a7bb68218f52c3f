"""Well-known text (WKT) of one well-known binary, for people to read."""

from __future__ import annotations

import struct
from typing import Any, Final

from bowstring.errors import InvalidBody

_POINT, _LINE, _POLYGON = 1, 2, 3
_NAMES: Final = {
    _POINT: "POINT",
    _LINE: "LINESTRING",
    _POLYGON: "POLYGON",
    4: "MULTIPOINT",
    5: "MULTILINESTRING",
    6: "MULTIPOLYGON",
    7: "GEOMETRYCOLLECTION",
}
_COLLECTION: Final = 7
_DIMENSIONS: Final = ("", " Z", " M", " ZM")
_EWKB: Final = {0x8000_0000: 1, 0x4000_0000: 2}
_SRID: Final = 0x2000_0000
_DEEPEST: Final = 32


def to_wkt(wkb: bytes) -> str:
    """Return a geometry as text; of EWKB without its SRID."""
    reader = _Reader(wkb)
    try:
        text = reader.geometry()
    except (struct.error, KeyError, IndexError) as error:
        raise InvalidBody(
            "this is not well-known binary", found=str(error), where=f"byte {reader.at}"
        ) from None
    if reader.at != len(wkb):
        raise InvalidBody("bytes follow a geometry", found=f"{len(wkb) - reader.at} bytes")
    return text


class _Reader:
    """Reads a geometry front to back."""

    def __init__(self, wkb: bytes) -> None:
        self._wkb = wkb
        self.at = 0
        self._order = "<"

    def geometry(self, *, named: bool = True, depth: int = 0) -> str:
        """Return the next geometry, with its name or, inside of others of its kind, without."""
        if depth > _DEEPEST:
            raise InvalidBody("collections are too deep", expected=f"at most {_DEEPEST}")
        self._order = "<" if self._take("B")[0] else ">"
        code = int(self._take("I")[0])
        if code & _SRID:
            self._take("I")
        thousands, kind = divmod(code & 0x0FFF_FFFF, 1000)
        dimensions = thousands | sum(value for flag, value in _EWKB.items() if code & flag)
        name = f"{_NAMES[kind]}{_DIMENSIONS[dimensions]} "
        tag = name if named else ""
        size = 2 + (dimensions & 1) + (dimensions >> 1)
        if kind == _POINT:
            text = self._points(1, size)
            return f"{tag}EMPTY" if set(text.split()) == {"nan"} else f"{tag}({text})"
        [count] = self._take("I")
        if kind == _LINE:
            text = self._points(count, size)
        elif kind == _POLYGON:
            text = ", ".join(f"({self._points(self._take('I')[0], size)})" for _ in range(count))
        else:
            named = kind == _COLLECTION
            text = ", ".join(self.geometry(named=named, depth=depth + 1) for _ in range(count))
        return f"{tag}({text})" if count else f"{tag}EMPTY"

    def _points(self, count: int, size: int) -> str:
        points = zip(*[iter(self._take(f"{count * size}d"))] * size, strict=True)
        return ", ".join(" ".join(repr(each).removesuffix(".0") for each in point) for point in points)

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(self._order + form, self._wkb, self.at)
        self.at += struct.calcsize(self._order + form)
        return values
