"""Python objects as nodes and numbered keys: one pass over what ``marshal`` writes of a list of rows, in version 4.

Work item: such a list. Only what stands for one value in every Variant is taken: None, bool, int of 64 bits, float,
str, list, tuple and dict of str, of these very types. All else refuses the list: the host looks at its rows one by
one. An object that occurs twice is written once, and read again from where it is.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.json import tree
from bowstring.kernels.json.keys import NO_ROOM, PLAN, POOL, POOL_END, POOL_SIZE, SPARE, STATE, enter_key
from bowstring.kernels.json.numbers import DOUBLE, INT64, byte_at, integer
from bowstring.kernels.json.strings import FALSE, LONG, LONGEST_SHORT, NULL, SHORT, TRUE, copy
from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant.encoding import little
from bowstring.kernels.words import load_word

REFS: Final = u64(5)
"""In the state of a list: objects that may be referred to."""
REFUSED: Final = u64(6)
"""In the state of a list: it holds what is not taken."""
BYTES: Final = u64(4)
"""In the state of a list, bytes that its values take, with one for the head of each container."""
NODES_FULL: Final = u64(1)
"""What is in the place of :data:`~bowstring.kernels.json.keys.NO_ROOM` where there are more nodes than room."""
KEYS_FULL: Final = u64(2)
ENCODED: Final = i64(1)
"""The rule of lists in which bytes are values that are encoded already."""

REFERRED = u64(0x80)
CODE = u64(0x7F)
NO_ONE = u64(0xFFFFFFFF)
ENDLESS = u64(0xFFFFFFFF)  # values that a dict still takes
LOWER = u64(0xFFFFFFFF)
ABOVE = u64(24)
DIGIT = u64(15)  # bits of a digit of a large int
MOST_DIGITS = u64(5)
NEGATIVE = u64(1 << 31)


def sized(data, at, stop):
    """Return the number of four bytes behind a code, and where that ends; it is 0 where they are not there."""
    number = u64(0)
    if at + 5 <= stop:
        number = little(data, at + 1, u64(4))
    return number, at + 5


def large_int(data, at, stop):
    """Return an int that takes more than 32 bits, where it ends, and a status."""
    count, begin = sized(data, at, stop)
    negative = count >= NEGATIVE
    if negative:
        count = (NEGATIVE << 1) - count
    end = begin + count * 2
    status = tree.UNEXPECTED
    value = u64(0)
    if count <= MOST_DIGITS and end <= stop:
        status = tree.READ
        k = count
        while k > 0:
            k -= 1
            digit = little(data, begin + k * 2, u64(2))
            if value >> (64 - DIGIT) != 0:
                status = tree.UNEXPECTED
            value = value << DIGIT | digit
        if value > ((1 << 63) - 1) + u64(negative):
            status = tree.UNEXPECTED
    return ~value + 1 if negative else value, end, status


def text_at(data, at, code, stop):
    """Return where the text of a str begins and ends, and a status."""
    begin = at + 2
    size = byte_at(data, at + 1, stop)
    status = tree.READ
    is_wide = code == ord("u") or code == ord("t")
    if is_wide or code == ord("a") or code == ord("A"):
        size, begin = sized(data, at, stop)
    elif code != ord("z") and code != ord("Z"):
        status = tree.UNEXPECTED
    end = begin + size
    if end > stop:
        status = tree.UNEXPECTED
    elif is_wide and status == tree.READ and not is_text(data, i64(begin), i64(end)):
        status = tree.NO_TEXT
    return begin, end, status


def referred(data, at, stop, state, states, refs):
    """Return where the object is that a reference names; `at` itself where it names none."""
    number, end = sized(data, at, stop)
    place = at
    if end <= stop and number < u64(states[state + REFS]):
        place = u64(refs[number * 2])
    return place


def remember(at, state, states, refs):
    """Number an object that may be referred to."""
    number = u64(states[state + REFS])
    if number * 2 + 1 < u64(len(refs)):
        refs[number * 2] = at
        refs[number * 2 + 1] = 0
        states[state + REFS] = number + 1


def read_key(data, at, stop, again, seed, part, plan, states, refs, table, names, pool):
    """Return where a key ends, a status, and its number, and one."""
    state = part * STATE
    place = at
    behind = u64(0)
    known = u64(len(refs))
    byte = byte_at(data, at, stop)
    if byte == ord("r"):
        place = referred(data, at, stop, state, states, refs)
        behind = at + 5
        known = little(data, at + 1, u64(4)) * 2 + 1 if place != at else known
        byte = byte_at(data, place, stop)
    elif byte & REFERRED != 0 and again < 0:
        known = u64(states[state + REFS]) * 2 + 1
        remember(at, state, states, refs)
    entry = u64(0)
    status = tree.READ
    end = behind
    if known < u64(len(refs)):
        entry = u64(refs[known])
    if entry == 0:
        begin, end, status = text_at(data, place, byte & CODE, stop)
        pool_end = u64(states[state + POOL_END])
        if status == tree.READ:
            size = end - begin
            if pool_end + size + SPARE > u64(plan[part * PLAN + POOL]) + u64(plan[part * PLAN + POOL_SIZE]):
                status = tree.FULL
            else:
                copy(data, begin, pool, pool_end, size)
                status, entry = enter_key(size, u64(0), seed, part, plan, states, table, names, pool)
        if known < u64(len(refs)):
            refs[known] = entry
        if behind != 0:
            end = behind
    return end, status, entry


def read_leaf(data, at, code, stop, rules):
    """Return where a leaf ends, a status, and the node's head, body and size."""
    end = at + 1
    status = tree.READ
    head = tree.LITERAL | NULL << 8
    body = u64(0)
    size = u64(1)
    if code == ord("T"):
        head = tree.LITERAL | TRUE << 8
    elif code == ord("F"):
        head = tree.LITERAL | FALSE << 8
    elif code == ord("i"):
        word, end = sized(data, at, stop)
        negative = word >= NEGATIVE
        head, body, size = integer(i64((NEGATIVE << 1) - word if negative else word), negative)
    elif code == ord("l"):
        body, end, status = large_int(data, at, stop)
        head = tree.INTEGER | INT64 << 8
        size = u64(9)
    elif code == ord("g"):
        end = at + 9
        head = tree.INTEGER | DOUBLE << 8
        size = u64(9)
        if end <= stop:
            body = load_word(data, at + 1)
    elif code == ord("s") and rules & ENCODED != 0:
        size, body = sized(data, at, stop)
        end = body + size
        head = tree.LITERAL | byte_at(data, body, stop) << 8
        if size == 0:
            status = tree.UNEXPECTED
    elif code != ord("N"):
        body, end, status = text_at(data, at, code, stop)
        length = end - body
        head = tree.PLAIN | (SHORT | length << 2) << 8
        size = length + 1
        if length > LONGEST_SHORT:
            head = tree.PLAIN | LONG << 8
            size = length + 5
    if end > stop:
        status = tree.UNEXPECTED
    return end, status, head, body, size


def read_object(data, start, part, rules, depth, seed, origin, plan, states, refs, nodes, table, names, pool):
    """Read one row into the nodes from `origin` on; return where it ends, a status, and how many nodes it has."""
    stop = u64(len(data))
    state = part * STATE
    room = u64(plan[part * PLAN + 2]) + u64(plan[part * PLAN + 3]) - origin
    at = start
    used = u64(0)
    listed = u64(0)
    parent = NO_ONE
    inside = tree.ARRAY
    level = i64(0)
    again = i64(-1)  # the level of an object that is read again, in which nothing is numbered
    left = u64(1)
    key = u64(0)
    status = tree.READ
    while status == tree.READ:
        ended = left == 0
        if inside == tree.OBJECT and byte_at(data, at, stop) == ord("0"):
            at += 1
            ended = True
        if ended:
            if level == 0:
                break
            node = (origin + parent) * tree.NODE
            count = u64(nodes[node + tree.BODY])
            behind = u64(nodes[node + tree.SIZE]) >> 32
            nodes[node + tree.HEAD] = inside | count << ABOVE
            nodes[node + tree.BODY] = listed << 32 | count
            nodes[node + tree.SIZE] = 0
            listed += count
            parent = u64(nodes[node + tree.LINK]) >> 32
            level -= 1
            if behind != 0:
                at = behind
            if again == level:
                again = i64(-1)
            inside = tree.ARRAY
            left = u64(0)
            if level > 0:
                inside = u64(nodes[(origin + parent) * tree.NODE + tree.HEAD])
                left = u64(nodes[(origin + parent) * tree.NODE + tree.SIZE]) & LOWER
            continue
        if inside == tree.OBJECT:
            at, status, entry = read_key(
                data, at, stop, again, seed, part, plan, states, refs, table, names, pool
            )
            key = entry - 1
        if status != tree.READ:
            break
        if used >= room:
            states[state + NO_ROOM] = NODES_FULL
            status = tree.FULL
            break
        left = ENDLESS if inside == tree.OBJECT else left - 1
        place = at
        behind = u64(0)
        if byte_at(data, at, stop) == ord("r"):
            place = referred(data, at, stop, state, states, refs)
            behind = at + 5
        elif byte_at(data, at, stop) & REFERRED != 0 and again < 0:
            remember(at, state, states, refs)
        code = byte_at(data, place, stop) & CODE
        node = (origin + used) * tree.NODE
        nodes[node + tree.LINK] = parent << 32 | key
        if level > 0:
            over = (origin + parent) * tree.NODE
            nodes[over + tree.BODY] += 1
            nodes[over + tree.SIZE] = (u64(nodes[over + tree.SIZE]) & ~LOWER) | left
        if code == ord("[") or code == ord("(") or code == ord(")") or code == ord("{"):
            if behind != 0 and again < 0:
                again = level
            inside = tree.ARRAY
            left, at = sized(data, place, stop)
            if code == ord(")"):
                left = byte_at(data, place + 1, stop)
                at = place + 2
            elif code == ord("{"):
                inside = tree.OBJECT
                left = ENDLESS
                at = place + 1
            nodes[node + tree.HEAD] = inside
            nodes[node + tree.BODY] = 0
            nodes[node + tree.SIZE] = behind << 32 | left
            parent = used
            states[state + BYTES] += 1
            if level >= depth:
                status = tree.TOO_DEEP
            level += 1
        else:
            end, status, head, body, size = read_leaf(data, place, code, stop, rules)
            nodes[node + tree.HEAD] = head
            nodes[node + tree.BODY] = body
            nodes[node + tree.SIZE] = size
            states[state + BYTES] += size
            at = behind if behind != 0 else end
        used += 1
    return at, status, used


def read_objects(
    i,
    data,
    plan,  # whose rows are not looked at: a list says how many it has
    rules,
    depth,
    seed,
    firsts,
    counts,
    refs,
    nodes,
    table,
    names,
    pool,
    states,
):
    """Read a list of rows; write where the nodes of each begin and how many they are."""
    part = u64(i)
    state = part * STATE
    states[state + POOL_END] = plan[part * PLAN + POOL]
    if byte_at(data, u64(0), u64(len(data))) & REFERRED != 0:
        remember(u64(0), state, states, refs)
    rows, at = sized(data, u64(0), u64(len(data)))
    used = u64(plan[part * PLAN + 2])
    status = tree.READ
    row = u64(0)
    while status == tree.READ and row < rows and row < u64(len(firsts)):
        firsts[row] = used
        count = u64(0)
        if byte_at(data, at, u64(len(data))) == ord("N"):
            at += 1  # an SQL NULL
        else:
            at, status, count = read_object(
                data, at, part, rules, depth, seed, used, plan, states, refs, nodes, table, names, pool
            )
        counts[row] = count
        used += count
        row += 1
    if status == tree.FULL:
        if u64(states[state + NO_ROOM]) == 0:
            states[state + NO_ROOM] = KEYS_FULL
    elif status != tree.READ or rows != u64(len(firsts)):
        states[state + REFUSED] = 1


SIGNATURES = {
    read_objects: (
        "u8[], u64[], i64, i64, u64, u64[]!, u64[]!, u64[]!, u64[]!, u64[]!, u64[]!, u8[]!, u64[]!",
    ),
}
