"""Variant's strings, binaries, UUIDs and whole values as Arrow's bytes: their sizes first, then a copy.

Work item: one row; of what copies the bytes of rows, a part of one, ``2 ** log`` items sharing a row.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i8, i64, u8, u32, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import value_end

TEXT: Final = i64(0)
BINARY: Final = i64(1)
UUID: Final = i64(2)
VALUE: Final = i64(3)
"""The whole value as it is, a Variant null for one where there is none."""

EITHER: Final = i64(4)
"""Text or binary."""

NOTHING: Final = i64(5)
"""No value but a Variant null."""

NULL_VALUE = u8(0)
NO_KIND = i8(-1)
SHORT_KIND = i64(15)
CONTAINER = i64(18)
LONGEST_INSIDE = i64(12)


def payload_start(data, at):
    """Return where the bytes of a string, binary or UUID begin, which is one."""
    first = at + 1
    header = u64(data[at])
    if header & encoding.BASIC == encoding.PRIMITIVE and header >> 2 != encoding.KIND_UUID:
        first = at + 5
    return first


def is_family(header, family):
    """Return whether a value with this header is of a family."""
    basic = header & encoding.BASIC
    kind = header >> 2
    return (
        family == VALUE
        or (
            family == TEXT
            and (basic == encoding.SHORT or (basic == encoding.PRIMITIVE and kind == encoding.KIND_STRING))
        )
        or (family == BINARY and basic == encoding.PRIMITIVE and kind == encoding.KIND_BINARY)
        or (
            family == EITHER
            and (
                basic == encoding.SHORT
                or (basic == encoding.PRIMITIVE and encoding.KIND_BINARY <= kind <= encoding.KIND_STRING)
            )
        )
        or (family == UUID and basic == encoding.PRIMITIVE and kind == encoding.KIND_UUID)
    )


def measure(data, at, family):
    """Return a status, and where the bytes of the value at `at` begin and end."""
    size = u64(len(data))
    first = at
    last = at
    status = encoding.MALFORMED
    if at < size:
        header = u64(data[at])
        if family != VALUE and header == 0:
            status = encoding.VARIANT_NULL
        elif not is_family(header, family):
            status = encoding.TYPE_MISMATCH
        else:
            last = value_end(data, at, size)
            status = encoding.OK
            if last == encoding.BROKEN:
                status = encoding.MALFORMED
            elif last == encoding.UNKNOWN:
                status = encoding.UNSUPPORTED
            elif family != VALUE:
                first = payload_start(data, at)
    return status, first, last


def measure_bytes(i, data, places, family, wanted, statuses, sizes):
    """Write how many bytes a row has, none where it has no value; if `wanted` is not negative, it must be that.

    Text must be UTF-8. A Variant null is a value of one byte where whole values are wanted.
    """
    size = i64(0)
    if statuses[i] == encoding.OK:
        status, first, last = measure(data, u64(places[i]), family)
        if status == encoding.OK:
            size = i64(last - first)
            limit = wanted if wanted >= 0 else size
            if size != limit:
                status = encoding.OVERFLOW
            elif family == TEXT and not is_text(data, i64(first), i64(last)):
                status = encoding.MALFORMED
        if status != encoding.OK:
            size = i64(0)
        statuses[i] = status
    elif statuses[i] == encoding.VARIANT_NULL and family == VALUE:
        size = i64(1)
    sizes[i] = size


def copy_between(data, first, out, at, size):
    """Copy bytes as far as both arrays reach."""
    source = max(i64(first), i64(0))
    target = max(at, i64(0))
    count = min(size, i64(len(data)) - source, i64(len(out)) - target)
    for k in range(count):
        out[target + k] = data[source + k]


def copy_part(i, log, data, first, out, at, size):
    """Copy an item's part of bytes that ``2 ** log`` items share, each taking neighbours; as copy_between."""
    if log == 0:
        copy_between(data, first, out, at, size)
    else:
        source = max(i64(first), i64(0))
        target = max(at, i64(0))
        items = i64(1) << log
        for k in range(i & (items - 1), min(size, i64(len(data)) - source, i64(len(out)) - target), items):
            out[u64(target + k)] = data[u64(source + k)]


def copy_bytes(i, log, data, places, family, statuses, offsets, out):
    """Copy the bytes of a row, which ``2 ** log`` items share, to where its offsets say."""
    if log == 0:  # compiled by itself: a row that is computed costs the host a third more
        copy_row(i, i, log, data, places, family, statuses, offsets, out)
    else:
        copy_row(i >> log, i, log, data, places, family, statuses, offsets, out)


def copy_row(row, i, log, data, places, family, statuses, offsets, out):
    """Copy an item's part of a row."""
    at = i64(offsets[row])
    size = i64(offsets[row + 1]) - at
    place = u64(places[row])
    if statuses[row] == encoding.OK and size > 0 and place < u64(len(data)):
        first = place
        if family != VALUE:
            first = payload_start(data, place)
        copy_part(i, log, data, first, out, at, size)
    elif size == 1 and at < i64(len(out)):
        out[max(at, i64(0))] = NULL_VALUE


def copy_fixed(i, log, data, places, width, statuses, out):
    """Copy the bytes of a row that are so many for each."""
    if log == 0:
        copy_fixed_row(i, i, log, data, places, width, statuses, out)
    else:
        copy_fixed_row(i >> log, i, log, data, places, width, statuses, out)


def copy_fixed_row(row, i, log, data, places, width, statuses, out):
    """Copy an item's part of a row."""
    place = u64(places[row])
    if statuses[row] == encoding.OK and place < u64(len(data)):
        copy_part(i, log, data, payload_start(data, place), out, row * width, width)


def write_views(i, offsets, data, views):
    """Write the view of a slot of `data`: its length, and the bytes, or the first four and where they all are."""
    at = max(i64(offsets[i]), i64(0))
    size = max(max(min(i64(offsets[i + 1]), i64(len(data))), i64(0)) - at, i64(0))
    first = i << 2
    views[first] = u32(size)
    for word in range(3):
        found = u64(0)
        if size <= LONGEST_INSIDE or word == 0:
            begin = at + (word << 2)
            for k in range(min(i64(4), size - (word << 2))):
                found |= u64(data[begin + k]) << u64(k << 3)
        elif word > 1:
            found = u64(at)
        views[first + 1 + word] = u32(found)


def after_booleans(kind):
    """Return 1 for the types behind the first boolean, which both are, and 0 before."""
    return i64(kind > 1)


def name_kinds(i, data, places, statuses, kinds):
    """Write the type of each value, -1 where there is none.

    0 is null, 1 both booleans; then follow the other primitives as the format numbers them, objects and arrays.
    """
    place = u64(places[i])
    kind = NO_KIND
    if statuses[i] == encoding.OK and place < u64(len(data)):
        header = u64(data[place])
        basic = header & encoding.BASIC
        if basic == encoding.PRIMITIVE:
            kind = i8(i64(header >> 2) - after_booleans(header >> 2))
        elif basic == encoding.SHORT:
            kind = i8(SHORT_KIND)
        else:
            kind = i8(CONTAINER + i64(basic))
    elif statuses[i] == encoding.VARIANT_NULL:
        kind = i8(0)
    kinds[i] = kind


SIGNATURES = {
    measure_bytes: ("u8[], u64[], i64, i64, u8[]!, i64[]!",),
    copy_bytes: ("i64, u8[], u64[], i64, u8[], i64[], u8[]!",),
    copy_fixed: ("i64, u8[], u64[], i64, u8[], u8[]!",),
    write_views: ("i64[], u8[], u32[]!",),
    name_kinds: ("u8[], u64[], u8[], i8[]!",),
}
