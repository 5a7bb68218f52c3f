"""Whether Variants mean the same, whatever their bytes.

Work item: a block of rows, of which each side has a status already: only rows that are right are compared. Nothing
recurses, and nothing works longer than the left value is long.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.floats import DOUBLE_INFINITY, SINGLE_INFINITY
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import frame, little, payload, signed
from bowstring.kernels.variant.metadata import name_between_quotes, slot_of
from bowstring.kernels.variant.text.leaves import decimal_at, without_zeros
from bowstring.kernels.words import same_bytes

WORDS: Final = i64(5)
"""Words of room for each pair of open containers: where both begin and must end, and which child is next."""
DIFFERENT: Final = u8(0)
SAME: Final = u8(1)
UNKNOWN: Final = u8(2)
"""The verdict on objects with so many keys in different orders that the bytes do not allow to find them."""
PATIENCE: Final = u64(256)
"""How many names may be compared for each byte of a value."""

RIGHT = i64(1)
STOP = i64(2)
RIGHT_STOP = i64(3)
NEXT = i64(4)

# The primitives, and the class of each: those of one class are compared with each other.
CONTAINERS = u64(32)


def compare_values(
    i,
    block,
    starts,
    stops,
    data,
    classes,
    bases,  # this and the next two: as quote_names writes them
    ends,
    names,
    statuses,
    right_starts,
    right_stops,
    right_data,
    right_classes,
    right_bases,
    right_ends,
    right_names,
    right_statuses,
    depth,
    room,  # WORDS words for each of depth levels of each work item
    verdicts,
):
    """Write the verdict on some rows: `UNKNOWN` where a status is not ``OK``. Each comparison reads whole
    names, so the caller replaces long ones.
    """
    slot = i * depth * WORDS
    for row in range(i * block, min((i + 1) * block, i64(len(verdicts)))):
        verdict = UNKNOWN
        group = i64(classes[row])
        right_group = i64(right_classes[row])
        if (
            statuses[row] == encoding.OK
            and right_statuses[row] == encoding.OK
            and group >= 0
            and group < i64(len(bases))
            and right_group >= 0
            and right_group < i64(len(right_bases))
        ):
            start, stop = slot_of(starts, stops, data, i64(row))
            right_start, right_stop = slot_of(right_starts, right_stops, right_data, i64(row))
            base = max(i64(bases[group]), i64(0))
            right_base = max(i64(right_bases[right_group]), i64(0))
            nodes = stop - start
            steps = nodes * PATIENCE
            level = i64(0)
            place = start
            bound = stop
            right = right_start
            right_bound = right_stop
            verdict = SAME
            going = True
            while going:
                going = False
                family = class_at(data, place, bound)
                if family == encoding.BROKEN or family != class_at(right_data, right, right_bound):
                    verdict = DIFFERENT
                elif family < CONTAINERS:
                    if not same_leaf(data, place, bound, right_data, right, right_bound, family):
                        verdict = DIFFERENT
                else:
                    count, _, _, _, _, _, _ = frame(data, place, bound)
                    right_count, _, _, _, _, _, _ = frame(right_data, right, right_bound)
                    if count != right_count or count == encoding.BROKEN:
                        verdict = DIFFERENT
                    elif level == depth or count > nodes:
                        verdict = UNKNOWN
                    else:
                        nodes -= count
                        top = slot + level * WORDS
                        room[top] = place
                        room[top + RIGHT] = right
                        room[top + STOP] = bound
                        room[top + RIGHT_STOP] = right_bound
                        room[top + NEXT] = 0
                        level += 1
                while verdict == SAME and level > 0 and not going:
                    top = slot + (level - 1) * WORDS
                    k = u64(room[top + NEXT])
                    count, id_width, ids, width, offsets, values, end = frame(
                        data, u64(room[top]), u64(room[top + STOP])
                    )
                    if count == encoding.BROKEN:
                        verdict = DIFFERENT
                    elif k == count:
                        level -= 1
                    else:
                        first = u64(0)
                        last = u64(0)
                        if id_width != 0:
                            first, last = name_between_quotes(
                                ends, base, little(data, ids + k * id_width, id_width)
                            )
                        place = values + little(data, offsets + k * width, width)
                        bound = end
                        room[top + NEXT] = k + 1
                        # The parts of one side at a time: registers are scarce.
                        count, id_width, ids, width, offsets, values, end = frame(
                            right_data, u64(room[top + RIGHT]), u64(room[top + RIGHT_STOP])
                        )
                        if count == encoding.BROKEN:
                            count = u64(0)
                        elif id_width != 0:
                            k, steps = field_of_name(
                                right_data,
                                ids,
                                id_width,
                                count,
                                k,
                                right_ends,
                                right_names,
                                right_base,
                                names,
                                first,
                                last,
                                steps,
                            )
                        if steps == 0:
                            verdict = UNKNOWN
                        elif k >= count:
                            verdict = DIFFERENT
                        else:
                            right = values + little(right_data, offsets + k * width, width)
                            right_bound = end
                            going = True
        verdicts[row] = verdict


def field_of_name(data, ids, width, count, first, ends, names, base, texts, start, stop, steps):
    """Return which field has a name, none where that is `count`, and the `steps` that are left, from `first` on."""
    left = steps
    found = count
    k = first
    tried = u64(0)
    while tried < count and left > 0:
        if k >= count:
            k = u64(0)
        begin, end = name_between_quotes(ends, base, little(data, ids + k * width, width))
        left -= 1
        tried += 1
        if end - begin == stop - start:
            left -= min(left, (stop - start) >> 3)
            if same_bytes(names, begin, texts, start, stop - start):
                found = k
                tried = count
                left = max(left, u64(1))
        k += 1
    return found, left


def class_at(data, at, stop):
    """Return the class of the value at a place before `stop`, which is what it is compared with; or BROKEN."""
    group = encoding.BROKEN
    if at < stop:
        header = u64(data[at])
        kind = header >> 2
        basic = header & encoding.BASIC
        if basic == encoding.SHORT:
            group = encoding.KIND_STRING
        elif basic >= encoding.OBJECT:
            group = CONTAINERS + basic
        elif kind >= encoding.INT8 and kind <= encoding.DECIMAL16 and kind != encoding.KIND_DOUBLE:
            group = encoding.INT8
        elif kind == encoding.NANOS:
            group = encoding.MICROS
        elif kind == encoding.NANOS_NTZ:
            group = encoding.MICROS_NTZ
        elif kind <= encoding.KIND_UUID:
            group = kind
    return group


def same_leaf(data, at, stop, right_data, right_at, right_stop, group):
    """Return whether two values of one class mean the same."""
    first, last = payload(data, at, stop)
    right_first, right_last = payload(right_data, right_at, right_stop)
    size = last - first
    right_size = right_last - right_first
    kind = u64(data[at]) >> 2
    right_kind = u64(right_data[right_at]) >> 2
    same = False
    if (group >= encoding.KIND_BINARY and group <= encoding.KIND_STRING) or group == encoding.KIND_UUID:
        same = size == right_size and same_bytes(data, first, right_data, right_first, size)
    elif min(size, right_size) == 0:
        same = size == right_size and group < encoding.INT8
    elif group == encoding.INT8:
        scale, negative, upper, lower = number_of(data, first, size, kind)
        right_scale, right_negative, right_upper, right_lower = number_of(
            right_data, right_first, right_size, right_kind
        )
        same = (
            scale == right_scale
            and negative == right_negative
            and upper == right_upper
            and lower == right_lower
        )
    elif group == encoding.KIND_DOUBLE or (group == encoding.KIND_FLOAT and size == right_size):
        one = u64(signed(data, first, i64(size)))
        other = u64(signed(right_data, right_first, i64(right_size)))
        top = DOUBLE_INFINITY
        if group == encoding.KIND_FLOAT:
            one <<= 32
            other <<= 32
            top = SINGLE_INFINITY << 32
        either = (one | other) << 1
        same = one == other
        if either == 0 or min(one << 1, other << 1) > top << 1:
            same = True
    elif group >= encoding.MICROS and group <= encoding.MICROS_NTZ:
        time = signed(data, first, i64(size))
        right_time = signed(right_data, right_first, i64(right_size))
        if kind == right_kind:
            same = time == right_time
        elif kind > right_kind:
            same = time % 1000 == 0 and time // 1000 == right_time
        else:
            same = right_time % 1000 == 0 and right_time // 1000 == time
    else:
        same = signed(data, first, i64(size)) == signed(right_data, right_first, i64(right_size))
    return same


def number_of(data, first, size, kind):
    """Return scale, sign and magnitude, in two parts, of an exact number without zeros behind the point."""
    scale = u64(0)
    negative = u64(0)
    upper = u64(0)
    lower = u64(0)
    if kind >= encoding.DECIMAL4:
        scale, negative, upper, lower = decimal_at(data, first, kind)
        if scale != encoding.BROKEN:
            upper, lower, scale = without_zeros(upper, lower, scale)
    else:
        number = signed(data, first, i64(size))
        negative = u64(number < 0)
        lower = u64(max(number, -number))
    return scale, negative, upper, lower


_SIDE = "i64[], i64[], u8[], i32[], i64[], i64[], u8[], u8[]"
SIGNATURES = {compare_values: (f"i64, {_SIDE}, {_SIDE}, i64, u64[]!, u8[]!",)}
