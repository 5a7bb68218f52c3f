"""JSON text as nodes and numbered keys: one pass over the text, which checks all there is to check.

Work item: a part, rows that follow each other and share a table of keys (:mod:`bowstring.kernels.json.names`).
Nothing that a row holds makes the work more than its bytes ask for: containers know the one they are in, so there
is no stack, and a key remembers the object that had it last, so that one that comes twice is seen at once.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.json.format import (
    ARRAY,
    BODY,
    END,
    FULL,
    HEAD,
    LINK,
    NODE,
    OBJECT,
    OUTSIDE,
    READ,
    SIZE,
    TOO_DEEP,
    TRAILING,
    TWICE,
    UNDECIDED,
    UNEXPECTED,
)
from bowstring.kernels.json.leaves import literal, text
from bowstring.kernels.json.marks import close, take_key
from bowstring.kernels.json.names import (
    KEPT,
    KEPT_END,
    KEYS,
    NAME,
    NO_ROOM,
    OWNER,
    PLAN,
    POOL,
    POOL_END,
    SERIAL,
    STATE,
    TABLE,
    UNKNOWN,
    expected_key,
    forget_keys,
    other_key,
)
from bowstring.kernels.json.numbers import MINUS, byte_at, number
from bowstring.kernels.json.strings import QUOTE
from bowstring.kernels.types import i64, u64

__all__ = ["SIGNATURES", "count_nodes", "read_rows"]

NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
ABOVE = u64(24)
HALF = u64(32)
KIND = u64(0xFF)
NO_ONE = u64(0xFFFFFFFF)
ZERO = i64(0)
UNIT = i64(1)

DIGIT_0 = u64(0x30)
TEN = u64(10)
COMMA = u64(0x2C)
COLON = u64(0x3A)
CLOSE_ARRAY = u64(0x5D)
OPEN_OBJECT = u64(0x7B)
TO_OBJECT = u64(0x20)  # makes an opening bracket of an array that of an object, and nothing else
CLOSE_OBJECT = u64(0x7D)
BLANK = u64(0x20)
BLANKS = u64(1 << 0x20 | 1 << 0x09 | 1 << 0x0A | 1 << 0x0D)

# What may come next.
VALUE = u64(0)
ELEMENT = u64(1)  # a value, or the end of an array
KEY = u64(2)
FIELD = u64(3)  # a key, or the end of an object
AFTER = u64(4)


def count_nodes(i: Any, data: Any, starts: Any, stops: Any, plan: Any, counts: Any, keys: Any) -> None:
    """Write how many nodes and keys a part can have at most.

    There is a node for each row, comma and opening bracket, and a key for each colon.
    """
    total = ZERO
    colons = ZERO
    for row in range(i64(plan[u64(i) * PLAN]), i64(plan[u64(i) * PLAN + ONE])):
        begin = max(i64(starts[row]), ZERO)
        size = min(i64(stops[row]), i64(len(data))) - begin
        count = UNIT
        for k in range(ZERO, size):
            byte = u64(data[begin + k])
            count += i64(byte == COMMA) + i64(byte | TO_OBJECT == OPEN_OBJECT)
            colons += i64(byte == COLON)
        total += count
    counts[i] = total
    keys[i] = colons


def behind_blanks(data: Any, at: Any, stop: Any) -> Any:
    """Return the next place that is no blank, tab or end of a line."""
    place = at
    while place < stop and u64(data[place]) <= BLANK and (BLANKS >> u64(data[place])) & ONE != NONE:
        place += ONE
    return place


def read_row(
    data: Any,
    start: Any,
    stop: Any,
    spark: Any,
    depth: Any,
    seed: Any,
    part: Any,
    origin: Any,
    plan: Any,
    states: Any,
    nodes: Any,
    children: Any,
    table: Any,
    names: Any,
    pool: Any,
) -> Any:
    """Read one row into the nodes from `origin` on; return a status, its place, and how many nodes there are."""
    at = start
    used = NONE
    before = u64(states[part * STATE + SERIAL])
    parent = NO_ONE
    inside = ARRAY
    level = ZERO
    key = NONE
    listed = NONE
    undone = NONE
    state = VALUE
    status = READ
    while status == READ:
        at = behind_blanks(data, at, stop)
        byte = byte_at(data, at, stop)
        closes = False
        if state == AFTER:
            if level == ZERO:
                if at < stop:
                    status = TRAILING
                break
            if byte == COMMA:
                at += ONE
                state = KEY if inside == OBJECT else VALUE
            elif byte == (CLOSE_OBJECT if inside == OBJECT else CLOSE_ARRAY):
                closes = True
            else:
                status = UNEXPECTED
        elif state >= KEY:
            if byte == QUOTE:
                entry, end = expected_key(data, at + ONE, stop, part, plan, states, names, pool)
                if entry == NONE:
                    end, status, entry = other_key(
                        data, at + ONE, stop, seed, part, plan, states, table, names, pool
                    )
                key = entry - ONE
                if status == READ:
                    status, undone = take_key(
                        key,
                        origin,
                        parent,
                        undone,
                        before,
                        u64(plan[part * PLAN + TWO]) + u64(plan[part * PLAN + THREE]),
                        ((u64(plan[part * PLAN + TABLE]) >> ONE) + key) * NAME + OWNER,
                        nodes,
                        children,
                        names,
                    )
                if status != TWICE:
                    at = end
                if status == READ:
                    at = behind_blanks(data, at, stop)
                    if byte_at(data, at, stop) == COLON:
                        at += ONE
                    else:
                        status = UNEXPECTED
                state = VALUE
            elif byte == CLOSE_OBJECT and state == FIELD:
                closes = True
            else:
                status = UNEXPECTED
        elif byte == CLOSE_ARRAY and state == ELEMENT:
            closes = True
        else:
            state = AFTER
            head = NONE
            body = NONE
            size = undone
            if byte | TO_OBJECT == OPEN_OBJECT:
                serial = u64(states[part * STATE + SERIAL]) + ONE
                states[part * STATE + SERIAL] = serial
                state = FIELD if byte == OPEN_OBJECT else ELEMENT
                inside = OBJECT if byte == OPEN_OBJECT else ARRAY
                head = inside | serial << ABOVE
                if level >= depth:
                    status = TOO_DEEP
                else:
                    at += ONE
            elif byte == QUOTE:
                at, status, head, body, size = text(data, at, stop)
            elif byte - DIGIT_0 < TEN or byte == MINUS:
                at, status, head, body, size = number(data, at, stop, spark)
                if head & KIND == UNDECIDED:
                    states[part * STATE + UNKNOWN] += ONE
            else:
                at, status, head = literal(data, at, stop)
                size = ONE
            if (
                status == READ
                and used >= u64(plan[part * PLAN + TWO]) + u64(plan[part * PLAN + THREE]) - origin
            ):
                status = UNEXPECTED
            if status == READ:
                node = (origin + used) * NODE
                nodes[node + HEAD] = head
                nodes[node + BODY] = body
                nodes[node + LINK] = parent << HALF | key
                nodes[node + SIZE] = size
                if level > ZERO:
                    nodes[(origin + parent) * NODE + BODY] += ONE
                if state != AFTER:
                    parent = used
                    level += UNIT
                used += ONE
        if closes:
            node = (origin + parent) * NODE
            listed, undone = close(
                node,
                inside,
                listed,
                undone,
                origin,
                u64(plan[part * PLAN + TABLE]) >> ONE,
                nodes,
                children,
                names,
            )
            parent = u64(nodes[node + LINK]) >> HALF
            level -= UNIT
            if level > ZERO:
                inside = u64(nodes[(origin + parent) * NODE + HEAD]) & KIND
            at += ONE
            state = AFTER
    if status == UNEXPECTED and at >= stop:
        status = END
    # Strings are read by words: one that does not end may be read to a little behind the row.
    return status, min(at, stop), used


def read_rows(
    i: Any,
    data: Any,
    starts: Any,
    stops: Any,
    plan: Any,
    spark: Any,
    depth: Any,
    seed: Any,
    statuses: Any,
    places: Any,
    firsts: Any,
    counts: Any,
    nodes: Any,
    children: Any,
    table: Any,
    names: Any,
    pool: Any,
    states: Any,
) -> None:
    """Read the rows of a part, those whose status is :data:`READ` before.

    Write their statuses, what place in the text each is about, where their nodes begin and how many they are.
    """
    part = u64(i)
    state = part * STATE
    row = u64(plan[part * PLAN])
    used = u64(plan[part * PLAN + TWO])
    states[state + POOL_END] = plan[part * PLAN + POOL]
    states[state + KEPT_END] = plan[part * PLAN + POOL]
    while row < u64(plan[part * PLAN + ONE]) and u64(states[state + NO_ROOM]) == NONE:
        start = i64(starts[row])
        stop = i64(stops[row])
        status = statuses[row]
        place = start
        count = NONE
        if status == READ and (start < ZERO or start > stop or stop > i64(len(data))):
            status = OUTSIDE
        elif status == READ:
            status, at, count = read_row(
                data,
                u64(start),
                u64(stop),
                spark,
                depth,
                seed,
                part,
                used,
                plan,
                states,
                nodes,
                children,
                table,
                names,
                pool,
            )
            place = i64(at)
            if status == READ:
                states[state + KEPT] = states[state + KEYS]
                states[state + KEPT_END] = states[state + POOL_END]
            else:
                count = NONE
                forget_keys(part, plan, states, table, names)
                if status == FULL:
                    states[state + NO_ROOM] = ONE
        statuses[row] = status
        places[row] = place - start
        firsts[row] = used
        counts[row] = count
        used += count
        row += ONE


SCRATCH = ("u64[]!", "u64[]!", "u64[]!", "u64[]!", "u8[]!", "u64[]!")
SIGNATURES = {
    count_nodes: ("u8[], i64[], i64[], u64[], i64[]!, i64[]!",),
    read_rows: (
        "u8[], i64[], i64[], u64[], i64, i64, u64, u8[]!, i64[]!, u64[]!, u64[]!, " + ", ".join(SCRATCH),
    ),
}
