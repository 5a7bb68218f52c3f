"""JSON text as nodes and numbered keys: one pass over the text, which checks all there is to check.

Work item: a part, rows that follow each other and share a table of keys (:mod:`bowstring.kernels.json.keys`).
Nothing that a row holds makes the work more than its bytes ask for: containers know the one they are in, so there
is no stack, and a key remembers the object that had it last, so that one that comes twice is seen at once.
"""

from __future__ import annotations

from bowstring.kernels.json import keys, tree
from bowstring.kernels.json.keys import expected_key, forget_keys, other_key
from bowstring.kernels.json.numbers import byte_at, number
from bowstring.kernels.json.strings import literal, text
from bowstring.kernels.types import i64, u64

ABOVE = u64(24)
KIND = u64(0xFF)
NO_ONE = u64(0xFFFFFFFF)

TO_OBJECT = u64(0x20)  # makes an opening bracket of an array that of an object, and nothing else
BLANKS = u64(1 << 0x20 | 1 << 0x09 | 1 << 0x0A | 1 << 0x0D)

# What may come next.
VALUE = u64(0)
ELEMENT = u64(1)  # a value, or the end of an array
KEY = u64(2)
FIELD = u64(3)  # a key, or the end of an object
AFTER = u64(4)


def count_nodes(i, data, starts, stops, counts, key_counts):
    """Write how many nodes and keys a row can have at most: one node more than commas and opening brackets, and a
    key for each colon. The work item is one row.
    """
    count = i64(1)
    colons = i64(0)
    begin = max(i64(starts[i]), i64(0))
    for k in range(begin, min(i64(stops[i]), i64(len(data)))):
        byte = u64(data[u64(k)])
        count += i64(byte == ord(",")) + i64(byte | TO_OBJECT == ord("{"))
        colons += i64(byte == ord(":"))
    counts[i] = count
    key_counts[i] = colons


def behind_blanks(data, at, stop):
    """Return the next place that is no blank, tab or end of a line."""
    place = at
    while place < stop and u64(data[place]) <= ord(" ") and (BLANKS >> u64(data[place])) & 1 != 0:
        place += 1
    return place


def take_key(key, origin, parent, undone, before, limit, rules, owned, nodes, children, names):
    """Mark a key as the current object's; return a status, and how many marks must be restored. A mark later
    than `before`, the last serial number of the row before, may be of an object around this one.
    """
    owner = u64(names[owned])
    head = u64(nodes[(origin + parent) * tree.NODE + tree.HEAD])
    current = head >> ABOVE
    status = tree.READ
    marks = undone
    if owner == current:
        if rules & tree.KEEP_LAST != 0:
            nodes[(origin + parent) * tree.NODE + tree.HEAD] = head | tree.REPEATS
        else:
            status = tree.TWICE
    elif owner > before:
        # The lists of children are not made yet: their room holds the marks.
        if origin + marks < limit:
            children[origin + marks] = key << 32 | owner
            marks += 1
        else:
            status = tree.UNEXPECTED
    names[owned] = current
    return status, marks


def read_rows(
    i,
    data,
    starts,
    stops,
    plan,
    rules,
    depth,
    seed,
    statuses,
    places,
    firsts,
    counts,
    nodes,
    children,
    table,
    names,
    pool,
    states,
):
    """Read the rows of a part, those whose status is :data:`READ` before.

    Write their statuses, what place in the text each is about, where their nodes begin and how many they are.
    """
    part = u64(i)
    state = part * keys.STATE
    row = u64(plan[part * keys.PLAN])
    used = u64(plan[part * keys.PLAN + 2])
    states[state + keys.POOL_END] = plan[part * keys.PLAN + keys.POOL]
    states[state + keys.KEPT_END] = plan[part * keys.PLAN + keys.POOL]
    while row < u64(plan[part * keys.PLAN + 1]) and u64(states[state + keys.NO_ROOM]) == 0:
        start = i64(starts[row])
        stop = i64(stops[row])
        status = statuses[row]
        place = start
        count = u64(0)
        if status == tree.READ and (start < 0 or start > stop or stop > i64(len(data))):
            status = tree.OUTSIDE
        elif status == tree.READ:
            begin = u64(start)
            until = u64(stop)
            at = begin
            count = u64(0)
            before = u64(states[part * keys.STATE + keys.SERIAL])
            parent = NO_ONE
            inside = tree.ARRAY
            level = i64(0)
            key = u64(0)
            listed = u64(0)
            undone = u64(0)
            expected = VALUE
            status = tree.READ
            while status == tree.READ:
                at = behind_blanks(data, at, until)
                byte = byte_at(data, at, until)
                closes = False
                if expected == AFTER:
                    if level == 0:
                        if at < until:
                            status = tree.TRAILING
                        break
                    if byte == ord(","):
                        at += 1
                        expected = KEY if inside == tree.OBJECT else VALUE
                    elif byte == (ord("}") if inside == tree.OBJECT else ord("]")):
                        closes = True
                    else:
                        status = tree.UNEXPECTED
                elif expected >= KEY:
                    if byte == ord('"'):
                        entry, end = expected_key(data, at + 1, until, part, plan, states, names, pool)
                        if entry == 0:
                            end, status, entry = other_key(
                                data, at + 1, until, seed, part, plan, states, table, names, pool
                            )
                        key = entry - 1
                        if status == tree.READ:
                            status, undone = take_key(
                                key,
                                used,
                                parent,
                                undone,
                                before,
                                u64(plan[part * keys.PLAN + 2]) + u64(plan[part * keys.PLAN + 3]),
                                rules,
                                ((u64(plan[part * keys.PLAN + keys.TABLE]) >> 1) + key) * keys.NAME
                                + keys.OWNER,
                                nodes,
                                children,
                                names,
                            )
                        if status != tree.TWICE:
                            at = end
                        if status == tree.READ:
                            at = behind_blanks(data, at, until)
                            if byte_at(data, at, until) == ord(":"):
                                at += 1
                            else:
                                status = tree.UNEXPECTED
                        expected = VALUE
                    elif byte == ord("}") and expected == FIELD:
                        closes = True
                    else:
                        status = tree.UNEXPECTED
                elif byte == ord("]") and expected == ELEMENT:
                    closes = True
                else:
                    expected = AFTER
                    head = u64(0)
                    body = u64(0)
                    size = undone
                    if byte | TO_OBJECT == ord("{"):
                        serial = u64(states[part * keys.STATE + keys.SERIAL]) + 1
                        states[part * keys.STATE + keys.SERIAL] = serial
                        expected = FIELD if byte == ord("{") else ELEMENT
                        inside = tree.OBJECT if byte == ord("{") else tree.ARRAY
                        head = inside | serial << ABOVE
                        if level >= depth:
                            status = tree.TOO_DEEP
                        else:
                            at += 1
                    elif byte == ord('"'):
                        at, status, head, body, size = text(data, at, until)
                    elif byte - ord("0") < 10 or byte == ord("-"):
                        at, status, head, body, size = number(data, at, until, rules & tree.SPARK)
                        if head & KIND == tree.UNDECIDED:
                            states[part * keys.STATE + keys.UNKNOWN] += 1
                    else:
                        at, status, head = literal(data, at, until)
                        size = u64(1)
                    if (
                        status == tree.READ
                        and count >= u64(plan[part * keys.PLAN + 2]) + u64(plan[part * keys.PLAN + 3]) - used
                    ):
                        status = tree.UNEXPECTED
                    if status == tree.READ:
                        node = (used + count) * tree.NODE
                        nodes[node + tree.HEAD] = head
                        nodes[node + tree.BODY] = body
                        nodes[node + tree.LINK] = parent << 32 | key
                        nodes[node + tree.SIZE] = size
                        if level > 0:
                            nodes[(used + parent) * tree.NODE + tree.BODY] += 1
                        if expected != AFTER:
                            parent = count
                            level += 1
                        count += 1
                if closes:
                    node = (used + parent) * tree.NODE
                    first = u64(plan[part * keys.PLAN + keys.TABLE]) >> 1
                    num_children = u64(nodes[node + tree.BODY])
                    mark = u64(nodes[node + tree.SIZE])
                    left = undone
                    while left > mark:
                        left -= 1
                        mark_entry = u64(children[used + left])
                        names[(first + (mark_entry >> 32)) * keys.NAME + keys.OWNER] = mark_entry & 0xFFFFFFFF
                    nodes[node + tree.HEAD] = (
                        inside | (u64(nodes[node + tree.HEAD]) & tree.REPEATS) | num_children << ABOVE
                    )
                    nodes[node + tree.BODY] = listed << 32 | num_children
                    nodes[node + tree.SIZE] = 0
                    listed = listed + num_children
                    undone = left
                    parent = u64(nodes[node + tree.LINK]) >> 32
                    level -= 1
                    if level > 0:
                        inside = u64(nodes[(used + parent) * tree.NODE + tree.HEAD]) & KIND
                    at += 1
                    expected = AFTER
            if status == tree.UNEXPECTED and at >= until:
                status = tree.END
            # Strings are read by words: one that does not end may be read to a little behind the row.
            at = min(at, until)
            place = i64(at)
            if status == tree.READ:
                states[state + keys.KEPT] = states[state + keys.KEYS]
                states[state + keys.KEPT_END] = states[state + keys.POOL_END]
            else:
                count = u64(0)
                forget_keys(part, plan, states, table, names)
                if status == tree.FULL:
                    states[state + keys.NO_ROOM] = 1
        statuses[row] = status
        places[row] = place - start
        firsts[row] = used
        counts[row] = count
        used += count
        row += 1


SCRATCH = ("u64[]!", "u64[]!", "u64[]!", "u64[]!", "u8[]!", "u64[]!")
SIGNATURES = {
    count_nodes: ("u8[], i64[], i64[], i64[]!, i64[]!",),
    read_rows: (
        "u8[], i64[], i64[], u64[], i64, i64, u64, u8[]!, i64[]!, u64[]!, u64[]!, " + ", ".join(SCRATCH),
    ),
}
