"""Well-known binary (WKB), scanned once: the extent of coordinates, the types, and what is wrong.

Work item: a block of rows. Open collections are counted in room of the work item. Doubles are compared as *keys*:
their bits as signed integers, the others flipped where the sign is set (:func:`key_of`); NaN is skipped. A *state*,
``state[k * slots + slot]``, is ten keys: the least and the greatest of x, y, z and m; then, for the antimeridian,
the least x that is not negative and the greatest that is. Minima stand at even places, maxima at odd ones.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.words import load_word, number_at, swapped

OK: Final = u8(0)
NULL: Final = u8(1)
MALFORMED: Final = u8(2)
"""The bytes end too soon or too late, or say what the format does not have."""
UNSUPPORTED: Final = u8(3)
"""A code that is none of the seven types."""
TOO_DEEP: Final = u8(4)
"""Collections inside each other, more than allowed."""

KEYS: Final = i64(10)
"""Keys of a state."""
LEAST: Final = i64(2**63 - 1)
"""The least key of no coordinates."""
GREATEST: Final = i64(-(2**63))
"""The greatest key of no coordinates."""
MAGNITUDE: Final = i64(2**63 - 1)
"""All bits of a double but its sign."""
EDGES: Final = u64(1 << 32)
"""The bit of a mask for lines and rings of two vertices or more, among the bits of the types: 7 for each of XY,
XYZ, XYM and XYZM.
"""

POINT = u64(1)
POLYGON = u64(3)
COLLECTION = u64(7)
# How far the types of several lie above the types of one.
SEVERAL = u64(3)
TYPES = u64(7)
# The codes of ISO: a type, and so many thousands for Z, M and both.
THOUSAND = u64(1000)
LARGEST = u64(3007)
# The flags of EWKB.
FLAG_Z = u64(0x80000000)
FLAG_M = u64(0x40000000)
FLAG_SRID = u64(0x20000000)
CODE = u64(0x1FFFFFFF)

HEADER = u64(5)
COUNT = u64(4)
WIDTH = u64(8)
UNSIGNED = u64(2**63 - 1)
INFINITY = u64(0x7FF << 52)
# The key of -0.0, from which on numbers are not negative.
ZERO = i64(-1)
# A little-endian point XY: how long it is, and its first five bytes.
POINT_SIZE = i64(21)
PLAIN_BITS = u64(0xFFFFFFFFFF)
PLAIN_POINT = u64(0x101)
# Where the keys of y, z and m stand in a state, and those of the two halves of x.
Y = i64(2)
Z = i64(4)
M = i64(6)
EAST = i64(8)


def key_of(word):
    """Return the bits of a double as an integer that has its order."""
    signed = i64(word)
    return signed ^ ((signed >> 63) & MAGNITUDE)


def number_of(data, at, big):
    """Return the unsigned integer of four bytes that lie in `data`."""
    number = number_at(data, at)
    if big:
        number = swapped(number) >> 32
    return number


def header_at(data, at, stop):
    """Return a status, whether numbers are big-endian, the type, whether it has Z and M, and its own end."""
    status = OK
    big = False
    kind = u64(0)
    has_z = False
    has_m = False
    end = at
    if stop - at < HEADER or data[at] > 1:
        status = MALFORMED
    else:
        big = data[at] == 0
        code = number_of(data, at + 1, big)
        end = at + HEADER
        plain = code & CODE
        dimensions = plain // THOUSAND
        kind = plain - dimensions * THOUSAND
        has_z = code & FLAG_Z != 0 or dimensions & 1 != 0
        has_m = code & FLAG_M != 0 or dimensions >= 2
        if plain > LARGEST or kind == 0 or kind > TYPES:
            status = UNSUPPORTED
        elif code & FLAG_SRID != 0:
            if stop - end < COUNT:
                status = MALFORMED
            else:
                end += COUNT
    return status, big, kind, has_z, has_m, end


def count_at(data, at, stop, big):
    """Return a status, a count, and where it ends."""
    status = OK
    count = u64(0)
    end = at
    if stop - at < COUNT:
        status = MALFORMED
    else:
        count = number_of(data, at, big)
        end = at + COUNT
    return status, count, end


def widened(word, least, greatest, east, west):
    """Return the four keys of an extent that takes in a double; NaN is skipped."""
    if word & UNSIGNED <= INFINITY:
        key = key_of(word)
        least = min(least, key)
        greatest = max(greatest, key)
        if key >= ZERO:
            east = min(east, key)
        else:
            west = max(west, key)
    return least, greatest, east, west


def extent(data, at, count, stride, big):
    """Return four keys of the doubles at `at` and every `stride` bytes from there on.

    They are the least and the greatest, the least that is not negative, and the greatest that is.
    """
    least = LEAST
    greatest = GREATEST
    east = LEAST
    west = GREATEST
    place = at
    for _ in range(i64(count)):
        word = load_word(data, place)
        if big:
            word = swapped(word)
        least, greatest, east, west = widened(word, least, greatest, east, west)
        place += stride
    return least, greatest, east, west


def widen(state, slots, place, least, greatest):
    """Let a pair of keys of a state take in another."""
    state[place] = min(i64(state[place]), least)
    state[place + slots] = max(i64(state[place + slots]), greatest)


def take_simple(data, begin, stop, kind, big, has_z, has_m, state, slots, slot):
    """Take in the point, line or polygon of which the header ends at `begin`: a status, its end, and its edges."""
    status = OK
    edges = u64(0)
    at = begin
    stride = 2 * WIDTH
    if has_z:
        stride += WIDTH
    if has_m:
        stride += WIDTH
    runs = u64(1)
    if kind == POLYGON:
        status, runs, at = count_at(data, at, stop, big)
    run = u64(0)
    while run < runs and status == OK:
        count = u64(1)
        if kind != POINT:
            status, count, at = count_at(data, at, stop, big)
        # A count has 32 bits and a vertex 32 bytes: no overflow.
        if count * stride > stop - at:
            status = MALFORMED
        elif count > 0:
            axis = u64(0)
            while axis * WIDTH < stride:
                least, greatest, east, west = extent(data, at + axis * WIDTH, count, stride, big)
                place = 2 * i64(axis)
                if place == Z and not has_z:
                    place = M
                widen(state, slots, slot + place * slots, least, greatest)
                if axis == 0:
                    widen(state, slots, slot + EAST * slots, east, west)
                axis += 1
            at += count * stride
            if count > 1:
                edges = EDGES
        run += 1
    return status, at, edges


def take_geometry(data, start, stop, depth, room, base, state, slots, slot):
    """Take in ``data[start:stop]``: a status, and the bits of its type and its edges."""
    # Only collections hold others of any type and need room; of other geometries, `parts` and their type suffice.
    at = start
    level = i64(0)
    parts = u64(0)
    wanted = u64(0)
    mask = u64(0)
    status = OK
    going = status == OK
    while going:
        status, big, kind, has_z, has_m, at = header_at(data, at, stop)
        if status == OK and parts > 0 and kind != wanted:
            status = MALFORMED
        if status == OK and mask == 0:
            bit = kind - 1
            if has_z:
                bit += TYPES
            if has_m:
                bit += 2 * TYPES
            mask = 1 << bit
        inside = u64(0)
        if status == OK and kind <= POLYGON:
            status, at, edges = take_simple(data, at, stop, kind, big, has_z, has_m, state, slots, slot)
            mask |= edges
            if parts > 0:
                parts -= 1
        elif status == OK:
            status, inside, at = count_at(data, at, stop, big)
            if kind < COLLECTION:
                parts = inside
                wanted = kind - SEVERAL
            elif inside > 0 and level == depth:
                status = TOO_DEEP
            elif inside > 0:
                room[base + level] = inside
                level += 1
        if parts == 0 and (inside == 0 or kind < COLLECTION):
            # What ends here may end the collections that it is the last one of.
            left = u64(0)
            while left == 0 and level > 0:
                left = u64(room[base + level - 1]) - 1
                room[base + level - 1] = left
                if left == 0:
                    level -= 1
        going = status == OK and (parts > 0 or level > 0)
    if status == OK and at != stop:
        status = MALFORMED
    return status, mask


def take_points(data, starts, stops, validity, begin, until, statuses, state, slots, slot):
    """Take in the little-endian points XY that rows from `begin` on are, and return the first row that is none.

    Most columns of points hold nothing else: their keys stay in registers.
    """
    size = i64(len(data))
    least_x = LEAST
    greatest_x = GREATEST
    least_y = LEAST
    greatest_y = GREATEST
    east = LEAST
    west = GREATEST
    row = begin
    going = row < until
    while going:
        start = i64(starts[row])
        going = start >= 0 and start <= size - POINT_SIZE and i64(stops[row]) - start == POINT_SIZE
        if going:
            at = u64(start)
            going = load_word(data, at) & PLAIN_BITS == PLAIN_POINT and bit_is_set(validity, row)
            if going:
                x = load_word(data, at + HEADER)
                y = load_word(data, at + HEADER + WIDTH)
                least_x, greatest_x, east, west = widened(x, least_x, greatest_x, east, west)
                least_y, greatest_y, _, _ = widened(y, least_y, greatest_y, LEAST, GREATEST)
                statuses[row] = OK
                row += 1
                going = row < until
    if row > begin:
        widen(state, slots, slot, least_x, greatest_x)
        widen(state, slots, slot + Y * slots, least_y, greatest_y)
        widen(state, slots, slot + EAST * slots, east, west)
    return row


def scan_wkb(i, block, spread, validity, starts, stops, data, depth, room, state, masks, statuses):
    """Write the status of each row, the state and the mask of all rows of the block; with `spread`, of each row."""
    # room: `depth` words for each work item; a mask has the bits of all types of rows, and `EDGES`.
    # The state and the mask of a row whose status is an error are not exact.
    slots = i64(len(masks))
    size = i64(len(data))
    first = i * block
    end = min(first + block, i64(len(statuses)))
    held = min(i64(len(starts)), i64(len(stops)))
    row = first
    while row < end:
        slot = i
        until = min(end, held)
        if spread != 0:
            slot = row
            until = min(row + 1, held)
        if spread != 0 or row == first:
            masks[slot] = u64(0)
            for k in range(KEYS):
                key = LEAST
                if k & 1 != 0:
                    key = GREATEST
                state[k * slots + slot] = key
        after = take_points(data, starts, stops, validity, row, until, statuses, state, slots, slot)
        if after > row:
            masks[slot] = u64(masks[slot]) | 1
            row = after
        else:
            start = i64(-1)
            stop = i64(-1)
            if row < held:
                start = i64(starts[row])
                stop = i64(stops[row])
            status = MALFORMED
            if not bit_is_set(validity, row):
                status = NULL
            elif start >= 0 and start < stop <= size:
                status, mask = take_geometry(
                    data, u64(start), u64(stop), depth, room, i * depth, state, slots, slot
                )
                masks[slot] = u64(masks[slot]) | mask
            statuses[row] = status
            row += 1


SIGNATURES = {
    scan_wkb: tuple(
        f"i64, i64, u8[], {each}[], {each}[], u8[], i64, u64[]!, i64[]!, u64[]!, u8[]!"
        for each in ("i32", "i64")
    ),
}
