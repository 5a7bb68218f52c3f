"""The keys of rows that are read together: a table of the distinct ones, numbered as they come.

The table has a word for each key: its hash, and in the lower half its number plus one, since 0 is an empty
slot. The hash depends on a random seed: else keys could be chosen so that all collide. There is no kernel here.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.json import tree
from bowstring.kernels.json.strings import copy, string_end, unescape
from bowstring.kernels.types import u64
from bowstring.kernels.words import bytes_at, load_word, same_bytes

PLAN: Final = u64(8)
"""Words of the plan of a part: its first row and the one behind its last; where its nodes, its table and its pool
begin, each with its size; that of the table is a power of two. Its names begin at half the place of its table."""
TABLE: Final = u64(4)
SLOTS: Final = u64(5)
POOL: Final = u64(6)
POOL_SIZE: Final = u64(7)

STATE: Final = u64(8)
"""Words of what is known of a part while it is read, in `states`."""
KEYS: Final = u64(0)
POOL_END: Final = u64(1)
KEPT: Final = u64(2)
"""The keys of the rows that were read to their end."""
KEPT_END: Final = u64(3)
LAST: Final = u64(4)
"""The number, and one, of the last key."""
SERIAL: Final = u64(5)
"""Containers that were opened."""
UNKNOWN: Final = u64(6)
"""Doubles that the host must find."""
NO_ROOM: Final = u64(7)

NAME: Final = u64(4)
"""Words of a key in `names`."""
START: Final = u64(0)
"""Where it begins in the pool."""
LENGTH: Final = u64(1)
"""Its bytes, with :data:`ESCAPES` if it was written with escapes."""
OWNER: Final = u64(2)
"""The object that had it last."""
PLACE: Final = u64(3)
"""Its place in the table, and in the lower half the number plus one of the key that came after it last."""
SPARE: Final = u64(8)
"""Bytes that must follow the last key in the pool."""

ESCAPES = u64(1 << 63)
FACTOR = u64(0x9E3779B97F4A7C15)
OTHER = u64(0xD6E8FEB86659FD93)


def mixed(word):
    """Return a word mixed with itself. The product of its halves makes the effect of a change depend on the
    whole word, and so on the seed: with constant factors only, changes of two words in a row could be chosen to
    cancel out.
    """
    found = (word & 0xFFFFFFFF) * (word >> 32) ^ word * FACTOR
    return found ^ (found >> 32)


def hash_of(pool, start, size, seed):
    """Return a hash of some bytes of the pool."""
    found = seed ^ (size * OTHER)
    at = start
    left = size
    while left >= 8:
        found = mixed(found ^ load_word(pool, at))
        at += 8
        left -= 8
    found = (found ^ bytes_at(pool, at, left) ^ seed) * OTHER
    found ^= found >> 32
    found *= FACTOR
    return found ^ (found >> 32)


def expected_key(data, at, stop, part, plan, states, names, pool):
    """Return the number plus one of the key at `at`, and its end, if it is the key that followed the last one
    before; else 0. Rows are alike, so this nearly always saves the search.
    """
    begin = u64(plan[part * PLAN + TABLE]) >> 1
    last = u64(states[part * STATE + LAST])
    entry = u64(0)
    size = u64(0)
    if last != 0:
        entry = u64(names[(begin + last - 1) * NAME + PLACE]) & 0xFFFFFFFF
        if entry > u64(states[part * STATE + KEYS]):
            entry = u64(0)
    if entry != 0:
        name = (begin + entry - 1) * NAME
        size = u64(names[name + LENGTH])  # with the mark, it ends behind any text
        if (
            size >= stop - at
            or at + size + 8 > u64(len(data))
            or u64(data[at + size]) != ord('"')
            or not same_bytes(data, at, pool, u64(names[name + START]), size)
        ):
            entry = u64(0)
    if entry != 0:
        states[part * STATE + LAST] = entry
    return entry, at + size + 1


def other_key(data, at, stop, seed, part, plan, states, table, names, pool):
    """Return where a key ends that begins behind its quote, a status, and its number, and one.

    It is written behind the others in the pool, and stays there where it is a new one.
    """
    state = part * STATE
    pool_end = u64(states[state + POOL_END])
    end, dropped, status = string_end(data, at, stop)
    size = end - at - dropped
    entry = u64(0)
    pool_stop = u64(plan[part * PLAN + POOL]) + u64(plan[part * PLAN + POOL_SIZE])
    if status == tree.READ and pool_end + size + SPARE > pool_stop:
        status = tree.FULL
    if status == tree.READ:
        if dropped == 0:
            copy(data, at, pool, pool_end, size)
        else:
            unescape(data, at, end, pool, pool_end, size)
        end += 1
        mark = u64(0) if dropped == 0 else ESCAPES
        status, entry = enter_key(size, mark, seed, part, plan, states, table, names, pool)
        last = u64(states[state + LAST])
        if last != 0 and status == tree.READ:
            after = ((u64(plan[part * PLAN + TABLE]) >> 1) + last - 1) * NAME + PLACE
            names[after] = (u64(names[after]) & ~u64(0xFFFFFFFF)) | entry
        states[state + LAST] = entry
    return end, status, entry


def enter_key(size, mark, seed, part, plan, states, table, names, pool):
    """Return a status, and the number plus one of the key that was written behind the others in the pool."""
    state = part * STATE
    pool_end = u64(states[state + POOL_END])
    begin = u64(plan[part * PLAN + TABLE])
    mask = u64(plan[part * PLAN + SLOTS]) - 1
    status = tree.READ
    found = hash_of(pool, pool_end, size, seed)
    place = found & mask
    entry = u64(table[begin + place])
    while entry != 0:
        if (entry ^ found) >> 32 == 0:
            known = ((begin >> 1) + (entry & 0xFFFFFFFF) - 1) * NAME
            if u64(names[known + LENGTH]) & ~ESCAPES == size and same_bytes(
                pool, u64(names[known + START]), pool, pool_end, size
            ):
                break
        place = (place + 1) & mask
        entry = u64(table[begin + place])
    entry = entry & 0xFFFFFFFF
    if entry == 0:
        entry = u64(states[state + KEYS]) + 1
        if entry << 1 > mask:
            status = tree.FULL
        else:
            name = ((begin >> 1) + entry - 1) * NAME
            names[name + START] = pool_end
            names[name + LENGTH] = size | mark
            names[name + OWNER] = 0
            names[name + PLACE] = place << 32
            table[begin + place] = (found & ~u64(0xFFFFFFFF)) | entry
            states[state + KEYS] = entry
            states[state + POOL_END] = pool_end + size
    return status, entry


def forget_keys(part, plan, states, table, names):
    """Take back the keys of a row that was refused, the last first: then no other is missed in the table."""
    state = part * STATE
    begin = u64(plan[part * PLAN + TABLE])
    now = u64(states[state + KEYS])
    kept = u64(states[state + KEPT])
    while now > kept:
        now -= 1
        table[begin + (u64(names[((begin >> 1) + now) * NAME + PLACE]) >> 32)] = 0
    states[state + KEYS] = kept
    states[state + POOL_END] = states[state + KEPT_END]
    states[state + LAST] = 0
