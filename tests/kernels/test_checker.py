"""The checker refuses what would differ between the runs of a kernel, and says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring.errors import UsageError
from bowstring.kernels.checker import check
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import match, parse
from bowstring.kernels.types import i64, u8, u64

ZERO = i64(0)
ONE = i64(1)
THREE = i64(3)
UNIT = u64(1)
PLAIN = 1
TABLE = np.arange(4, dtype=np.uint8)
FROZEN = np.arange(4, dtype=np.uint8)
FROZEN.flags.writeable = False

# The functions below are read, not run; their names say what is wrong with them.


def bare_literal(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] + 1


def bare_literal_as_index(i: Any, a: Any, out: Any) -> None:
    out[0] = a[i]


def untyped_constant(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] + PLAIN


def mixed_signs(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] + i64(u64(a[i]) - i)


def mixed_comparison(i: Any, a: Any, out: Any) -> None:
    if u64(a[i]) < i:
        out[i] = a[i]


def mixed_shift(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(u64(a[i]) << i)


def mixed_choice(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(UNIT if a[i] < ZERO else ONE)


def narrow_arithmetic(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(u8(a[i]) + u8(a[i]))


def true_division(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] / a[i]


def integer_as_condition(i: Any, a: Any, out: Any) -> None:
    while a[i]:
        out[i] = a[i]


def integer_negated(i: Any, a: Any, out: Any) -> None:
    if not a[i]:
        out[i] = a[i]


def wrong_store(i: Any, a: Any, out: Any) -> None:
    out[i] = u64(a[i])


def writes_its_input(i: Any, a: Any, out: Any) -> None:
    a[i] = out[i]


def two_types_of_a_name(i: Any, a: Any, out: Any) -> None:
    x = a[i]
    x = u64(x)
    out[i] = i64(x)


def assigned_on_one_way(i: Any, a: Any, out: Any) -> None:
    if a[i] < ZERO:
        x = ONE
    out[i] = x


def assigned_in_a_loop(i: Any, a: Any, out: Any) -> None:
    for k in range(ZERO, i):
        x = k
    out[i] = x


def loops_over_unsigned(i: Any, a: Any, out: Any) -> None:
    for k in range(u64(i), UNIT):
        out[i] = i64(k)


def calls_outside(i: Any, a: Any, out: Any) -> None:
    out[i] = abs(a[i])


def calls_a_method(i: Any, a: Any, out: Any) -> None:
    out[i] = a.sum()


def calls_itself(i: Any, a: Any, out: Any) -> None:
    calls_itself(i, a, out)


def calls_with_mixed_signs(i: Any, a: Any, out: Any) -> None:
    out[i] = added(a[i], UNIT)


def added(x: Any, y: Any) -> Any:
    return x + y


def returns_on_one_way(i: Any, a: Any, out: Any) -> None:
    out[i] = negative(a[i])


def negative(x: Any) -> Any:  # noqa: RET503  that is what is wrong
    if x < ZERO:
        return ONE
    x = -x


def returns_two_types(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(two_types(a[i]))


def two_types(x: Any) -> Any:
    if x < ZERO:
        return UNIT
    return ONE


def returns_a_value(i: Any, a: Any, out: Any) -> Any:
    return a[i]


def raises(i: Any, a: Any, out: Any) -> None:
    raise ValueError


def has_a_list(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(len([a[i]]))


def has_a_closure(i: Any, a: Any, out: Any) -> None:
    def inner(x: Any) -> Any:
        return x

    out[i] = inner(a[i])


def has_a_default(i: Any, a: Any, out: Any = None) -> None:
    pass


def slices(i: Any, a: Any, out: Any) -> None:
    b = a[i:]
    out[i] = b[ZERO]


def reads_a_table_that_can_change(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(TABLE[a[i]])


REFUSED = {
    bare_literal: "bare literal",
    bare_literal_as_index: "bare literal",
    untyped_constant: "no typed constant",
    mixed_signs: "u64 and i64",
    mixed_comparison: "u64 and i64",
    mixed_shift: "u64 and i64",
    mixed_choice: "u64 and i64",
    narrow_arithmetic: "arithmetic on u8",
    true_division: "operator",
    integer_as_condition: "bool is needed",
    integer_negated: "not for i64",
    wrong_store: "stored as i64",
    writes_its_input: "is written",
    two_types_of_a_name: "becomes u64",
    assigned_on_one_way: "not assigned on every way",
    assigned_in_a_loop: "not assigned on every way",
    loops_over_unsigned: "i64 is needed",
    calls_outside: "a call of abs",
    calls_a_method: "do not have",
    calls_itself: "calls itself",
    calls_with_mixed_signs: "i64 and u64",
    returns_on_one_way: "on every way",
    returns_two_types: "elsewhere",
    returns_a_value: "returns nothing",
    raises: "do not have",
    has_a_list: "do not have",
    has_a_closure: "do not have",
    has_a_default: "plain parameters",
    slices: "do not have",
    reads_a_table_that_can_change: "make it read-only",
}


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_offending_kernels_are_refused(kernel: Any) -> None:
    """What could differ between runs is refused, for its own reason."""
    with pytest.raises(UsageError, match=REFUSED[kernel]):
        check(parse(kernel, "i64[], i64[]!"))


def refused_float(i: Any, a: Any, b: Any, out: Any) -> None:
    out[i] = a[i] + b[i]


def truncated(i: Any, a: Any, b: Any, out: Any) -> None:
    out[i] = i64(b[i])


def test_floats_are_compared_and_never_computed() -> None:
    """Arithmetic on floats, and floats made integers, are refused: the compilers do their own."""
    with pytest.raises(UsageError, match="arithmetic on f64"):
        check(parse(refused_float, "f64[], f64[], f64[]!"))
    with pytest.raises(UsageError, match="each run does its own"):
        check(parse(truncated, "f64[], f64[], i64[]!"))


def test_the_line_is_named() -> None:
    """The error says in which file, line and function the kernel is wrong."""
    line = bare_literal.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"test_checker\.py:{line}, bare_literal"):
        check(parse(bare_literal, "i64[], i64[]!"))


def swapped(x: Any, y: Any) -> Any:
    return y, x


def store(out: Any, i: Any, x: Any) -> None:
    out[i] = x


def element(table: Any, at: Any) -> Any:
    return i64(table[at & THREE])


def all_that_is_allowed(i: Any, signed: Any, unsigned: Any, small: Any, floats: Any, out: Any) -> None:
    """Use every construct that kernels have."""
    total = ZERO
    for k in range(i * ONE, min(i64(len(signed)), i + THREE)):
        if signed[k] < ZERO or (unsigned[k] != UNIT and not small[k] <= small[ZERO]):
            continue
        total += signed[k] if signed[k] > total else -signed[k]
    while total < THREE:
        total = (total << ONE) | element(FROZEN, total)
        if total <= ZERO:
            break
        total += ONE
    one, other = swapped(total, u64(floats[i] > floats[ZERO]) + u64(7))
    store(out, i, i64(one) ^ ~other)
    out[i] //= max(THREE, i64(small[i]))


SIGNATURES = {all_that_is_allowed: ("i64[], u64[], u8[], f64[], i64[]!",)}


def test_what_is_allowed_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every construct that the checker lets pass does the same compiled and interpreted."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    signed, unsigned = rng.integers(-3, 9, 50), rng.integers(0, 3, 50, np.uint64)
    small, floats = rng.integers(0, 3, 50, np.uint8), rng.random(50)
    outs = {}
    for way in ("compile", "interpret"):
        monkeypatch.setenv("BOWSTRING_KERNELS", way)
        outs[way] = np.zeros(50, np.int64)
        signature, _ = match(all_that_is_allowed, (signed, unsigned, small, floats, outs[way]))
        check(signature)
        launch(all_that_is_allowed, 50, signed, unsigned, small, floats, outs[way])
    assert np.array_equal(outs["compile"], outs["interpret"])
    assert len(set(outs["compile"].tolist())) > 5
