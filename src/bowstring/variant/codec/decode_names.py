"""The names that a Variant's metadata holds ("Metadata encoding" of the specification)."""

from __future__ import annotations

import itertools

from bowstring.errors import InvalidBody, Truncated
from bowstring.variant.codec.decode_primitives import little

__all__ = ["decode_names"]


def decode_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names that a Variant's metadata holds, in the order of their ids.

    Parameters
    ----------
    metadata
        One metadata component; bytes behind its end are left alone.

    Returns
    -------
    tuple of str
        Duplicates included: the flag that says "sorted and unique" is not believed.

    Raises
    ------
    Truncated
        It ends before its own offsets say so.
    InvalidBody
        Another version than 1, offsets that step back, names that are not UTF-8.

    Examples
    --------
    >>> decode_names(bytes([0x11, 2, 0, 1, 2]) + b"ab")
    ('a', 'b')
    """
    if not metadata:
        raise Truncated("a Variant's metadata are empty", expected="at least 3 bytes", where="metadata")
    header = metadata[0]
    if header & 0x0F != 1:
        raise InvalidBody(
            "a Variant's metadata have another version", expected=1, found=header & 0x0F, where="metadata"
        )
    width = (header >> 6) + 1
    first = 1 + width
    if first > len(metadata):
        raise Truncated(
            "the size of a Variant's metadata is cut", expected=f"{width} bytes", where="metadata"
        )
    count = little(metadata, 1, width)
    start = first + (count + 1) * width
    if start > len(metadata):
        raise Truncated(
            "a Variant's metadata end within their offsets",
            expected=f"{start} bytes",
            found=len(metadata),
            where="metadata",
        )
    offsets = [little(metadata, first + index * width, width) for index in range(count + 1)]
    _check_name_offsets(offsets, len(metadata) - start)
    return tuple(
        _name(metadata[start + begin : start + end], index)
        for index, (begin, end) in enumerate(itertools.pairwise(offsets))
    )


def _name(encoded: bytes, index: int) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise InvalidBody(
            "a key is not UTF-8", found=error.reason, where=f"metadata, name {index}"
        ) from error


def _check_name_offsets(offsets: list[int], room: int) -> None:
    if offsets[0] != 0:
        raise InvalidBody(
            "the first name of a Variant's metadata begins late",
            expected=0,
            found=offsets[0],
            where="metadata",
        )
    for index, (begin, end) in enumerate(itertools.pairwise(offsets)):
        if end < begin:
            raise InvalidBody(
                "a name ends before it begins",
                expected=f"at least {begin}",
                found=end,
                where=f"metadata, name {index}",
            )
    if offsets[-1] > room:
        raise Truncated(
            "a Variant's metadata end within their names",
            expected=f"{offsets[-1]} bytes of names",
            found=room,
            where="metadata",
        )
