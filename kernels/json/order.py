"""The keys of objects in the order of their bytes, and Variant metadata that hold them.

Work item: the keys that share a dictionary, those of a block of rows or of one row. They are merged, runs of twice
the length at a time: no keys are chosen so that this takes longer than it must.
"""

from __future__ import annotations

from bowstring.kernels.json.strings import copy
from bowstring.kernels.json.tree import put, width_of
from bowstring.kernels.types import i64, u8, u32, u64
from bowstring.kernels.variant.encoding import compared
from bowstring.kernels.words import bytes_at, swapped

VERSION = u64(1)
SORTED_FLAG = u64(0x10)


def shared_bytes(first, count, starts, lengths, data):
    """Return with how many bytes all keys begin alike."""
    begin = u64(starts[first])
    shared = u64(lengths[first])
    for k in range(1, i64(count)):
        start = u64(starts[first + u64(k)])
        most = min(shared, u64(lengths[first + u64(k)]))
        shared = u64(0)
        while shared < most and u64(data[begin + shared]) == u64(data[start + shared]):
            shared += 1
    return shared


def ordered(first, one, other, shared, starts, lengths, data, words):
    """Return whether a key of a dictionary comes before, with or after another one: -1, 0 or 1."""
    left = first + u64(one)
    right = first + u64(other)
    found = i64(0)
    if u64(words[left]) != u64(words[right]):
        found = i64(1)
        if u64(words[left]) < u64(words[right]):
            found = i64(-1)
    else:
        start = u64(starts[left])
        begin = u64(starts[right])
        found = compared(
            data,
            start + shared,
            start + u64(lengths[left]),
            data,
            begin + shared,
            begin + u64(lengths[right]),
        )
    return found


def merge(first, here, there, middle, stop, shared, starts, lengths, data, words, order):
    """Merge two runs of keys that are in order, from `here` to `middle` and from there to `stop`."""
    left = here
    right = middle
    if (
        middle < stop
        and ordered(first, order[middle - 1], order[middle], shared, starts, lengths, data, words) <= 0
    ):
        right = stop  # they are in order already: the left run goes on to the end
    bound = middle if right < stop else stop
    for k in range(i64(stop - here)):
        takes_left = left < bound
        if takes_left and right < stop:
            takes_left = ordered(first, order[left], order[right], shared, starts, lengths, data, words) <= 0
        if takes_left:
            order[there + u64(k)] = order[left]
            left += 1
        else:
            order[there + u64(k)] = order[right]
            right += 1


def order_keys(
    i,
    bounds,  # dictionary i has the keys from bounds[i] on to those of the next
    starts,
    lengths,
    data,
    words,  # scratch
    order,  # twice as long as there are keys: the first half of each dictionary's is what comes out
    ranks,
    counts,
    sizes,
):
    """Write the rank of each key among the distinct ones of its dictionary; these in their order, counted from the
    first key of the dictionary; how many they are, and how many bytes the metadata take.
    """
    first = u64(bounds[i])
    count = u64(bounds[i + 1]) - first
    shared = u64(0)
    if count > 0:
        shared = shared_bytes(first, count, starts, lengths, data)
    here = first << 1
    there = here + count
    for k in range(i64(count)):
        key = first + u64(k)
        words[key] = swapped(bytes_at(data, u64(starts[key]) + shared, u64(lengths[key]) - shared))
        order[here + u64(k)] = u32(k)
    run = u64(1)
    while run < count:
        left = u64(0)
        while left < count:
            middle = min(left + run, count)
            stop = min(middle + run, count)
            merge(
                first,
                here + left,
                there + left,
                here + middle,
                here + stop,
                shared,
                starts,
                lengths,
                data,
                words,
                order,
            )
            left = stop
        other = here
        here = there
        there = other
        run = run << 1
    distinct = u64(0)
    text = u64(0)
    before = u64(0)
    for k in range(i64(count)):
        number = u64(order[here + u64(k)])
        if k == 0 or ordered(first, before, number, shared, starts, lengths, data, words) != 0:
            order[(first << 1) + distinct] = u32(number)
            text += u64(lengths[first + number])
            distinct += 1
        ranks[first + number] = u32(distinct - 1)
        before = number
    counts[i] = i64(distinct)
    sizes[i] = i64(1 + (distinct + 2) * width_of(max(text, distinct)) + text)


def write_keys(i, bounds, starts, lengths, data, order, counts, offsets, out):
    """Write the metadata of a dictionary whose keys were put in order."""
    first = u64(bounds[i])
    count = u64(counts[i])
    at = u64(offsets[i])
    # The one width of a number that makes the metadata as long as they were measured.
    size = u64(offsets[i + 1]) - at - 1
    width = u64(1)
    while width < 4 and width_of(max(size - (count + 2) * width, count)) > width:
        width += 1
    header = VERSION | (width - 1) << 6
    if count > 0:
        header |= SORTED_FLAG
    out[at] = u8(header)
    put(out, at + 1, count, width)
    place = at + 1 + width
    text = place + (count + 1) * width
    offset = u64(0)
    for k in range(i64(count)):
        key = first + u64(order[(first << 1) + u64(k)])
        put(out, place, offset, width)
        place += width
        copy(data, u64(starts[key]), out, text + offset, u64(lengths[key]))
        offset += u64(lengths[key])
    put(out, place, offset, width)


SIGNATURES = {
    order_keys: ("i64[], u64[], u64[], u8[], u64[]!, u32[]!, u32[]!, i64[]!, i64[]!",),
    write_keys: ("i64[], u64[], u64[], u8[], u32[], i64[], i64[], u8[]!",),
}
