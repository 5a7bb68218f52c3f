"""The checker refuses what would differ between the runs of a kernel, and says where."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from bowstring.errors import MissingDependency, UsageError
from bowstring.kernels import cubin, words
from bowstring.kernels.checker import check, typed
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import fingerprint, match, parse, signatures_of
from bowstring.kernels.types import f64, i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.vortex import gather

ZERO = i64(0)
ONE = i64(1)
THREE = i64(3)
UNIT = u64(1)
PLAIN = 1
TABLE = np.arange(4, dtype=np.uint8)
FROZEN = np.arange(4, dtype=np.uint8)
FROZEN.flags.writeable = False

# The functions below are read, not run; their names say what is wrong with them.


def literal_of_a_name(i: Any, a: Any, out: Any) -> None:
    x = 1
    out[i] = x


def literal_given_back(i: Any, a: Any, out: Any) -> None:
    out[i] = one()


def one() -> Any:
    return 1


def literal_as_argument(i: Any, a: Any, out: Any) -> None:
    out[i] = added(a[i], 1)


def literal_as_one_of_two(i: Any, a: Any, out: Any) -> None:
    out[i] = min(a[i], PLAIN)


def literal_instead_of_a_number(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] if a[i] < i else 0


def literals_alone(i: Any, a: Any, out: Any) -> None:
    x = 1 << 3
    out[i] = x


def literal_too_large(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] & 2**63


def literal_below_none(i: Any, a: Any, out: Any) -> None:
    out[i] = i64(u64(a[i]) + -1)


def literal_for_a_float(i: Any, a: Any, out: Any) -> None:
    out[i] = u64(f64(a[i]) < 1)


def text_as_literal(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i] + "1"


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


def names_what_a_module_lacks(i: Any, a: Any, out: Any) -> None:
    out[i] = words.NO_SUCH_WORD  # type: ignore[attr-defined]


def calls_what_a_module_lacks(i: Any, a: Any, out: Any) -> None:
    out[i] = words.sum(a[i])  # type: ignore[attr-defined]


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
    literal_of_a_name: "nothing here gives a type",
    literal_given_back: "nothing here gives a type",
    literal_as_argument: "nothing here gives a type",
    literal_as_one_of_two: "nothing here gives a type",
    literal_instead_of_a_number: "nothing here gives a type",
    literals_alone: "nothing here gives a type",
    literal_too_large: "i64 does not hold",
    literal_below_none: "u64 does not hold",
    literal_for_a_float: "f64 does not hold",
    text_as_literal: "do not have",
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
    calls_a_method: "a call of a.sum",
    names_what_a_module_lacks: "no typed constant",
    calls_what_a_module_lacks: "a call of words.sum",
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
    out[i] = a[i] % b[i]


def truncated(i: Any, a: Any, b: Any, out: Any) -> None:
    out[i] = i64(b[i])


def test_floats_are_computed_only_as_ieee_754_says() -> None:
    """Other arithmetic on floats, and floats made integers, are refused: the compilers do their own."""
    with pytest.raises(UsageError, match="operator that kernels do not have for f64"):
        check(parse(refused_float, "f64[], f64[], f64[]!"))
    with pytest.raises(UsageError, match="each run does its own"):
        check(parse(truncated, "f64[], f64[], i64[]!"))


def stored(i: Any, a: Any, out: Any) -> None:
    out[i] = a[i]


@pytest.mark.parametrize("given", ["i64", "u64"])
@pytest.mark.parametrize("narrow", ["i8", "i16", "i32", "u8", "u16", "u32"])
def test_only_signed_numbers_are_stored_in_narrower_ones(given: str, narrow: str) -> None:
    """An i64 is stored in narrower signed integers as it is; every other pair of types needs a conversion."""
    signature = parse(stored, f"{given}[], {narrow}[]!")
    if (given, narrow[0]) == ("i64", "i"):
        check(signature)
    else:
        with pytest.raises(UsageError, match=f"stored as {narrow}"):
            check(signature)


def test_the_line_is_named() -> None:
    """The error says in which file, line and function the kernel is wrong."""
    line = literal_of_a_name.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"test_checker\.py:{line}, literal_of_a_name"):
        check(parse(literal_of_a_name, "i64[], i64[]!"))


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


def literals(i: Any, signed: Any, unsigned: Any, small: Any, floats: Any, out: Any) -> None:
    """Use literals wherever kernels have them."""
    total = signed[0] * -2 + (3 if floats[i] > floats[1] else 2**40)
    for k in range(1, 4):
        total += i64(unsigned[k] >> 1) << PLAIN
    wide = unsigned[i] - (2**64 - 1)
    if not 0 <= small[i] < 2 and wide != 2**63:
        total ^= 0xFF
    out[i] = 7 if small[i] == 255 else -7
    out[i] += total % 1000 + i64(wide & 1 << 3) + i64(u64(3)) + i


def names_of_modules(i: Any, signed: Any, unsigned: Any, small: Any, floats: Any, out: Any) -> None:
    """Use constants, literals, tables and functions of other modules by these."""
    word = (unsigned[i] & words.EACH) + (u64(encoding.SIZES[u64(small[i])]) << gather.CODE)
    out[i] = words.leading_zeros(word) * signed[i] + gather.CODE


def computes(i: Any, a: Any, b: Any, out: Any) -> None:
    """Multiply and add, which fused would round once."""
    out[i] = a[i] * b[i] + a[i] / b[i] - b[i]


SIGNATURES = {
    computes: ("f64[], f64[], f64[]!", "f32[], f32[], f32[]!"),
    all_that_is_allowed: ("i64[], u64[], u8[], f64[], i64[]!",),
    literals: ("i64[], u64[], u8[], f64[], i64[]!",),
    names_of_modules: ("i64[], u64[], u8[], f64[], i64[]!",),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_floats_round_alike(kind: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums, products and quotients are the same bits compiled and interpreted, infinities and zeros included."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=500).astype(kind) * kind(1.1) for _ in range(2))
    a[:3], b[1:4] = kind(0), kind("-inf")
    outs = {way: np.zeros(500, kind) for way in ("jit", "interpret")}
    for way, out in outs.items():
        monkeypatch.setenv("BOWSTRING_KERNELS", way)
        launch(computes, 500, a, b, out)
    assert np.array_equal(outs["jit"], outs["interpret"], equal_nan=True)


def test_gpus_do_not_fuse() -> None:
    """For a GPU, a product and a sum are two operations, each with its rounding."""
    try:
        cubin.numba_cuda()
    except MissingDependency:
        pytest.skip("numba-cuda is not installed: nothing compiles for CUDA here")
    for signature, kind in zip(signatures_of(computes), ("f64", "f32"), strict=True):
        text = cubin.compile_text(signature)
        assert {f"{each}.rn.{kind}" for each in ("mul", "add", "sub", "div")} <= set(text.split())
        assert not re.search(r"\bfma|\bmad\.rn|\.approx|\.ftz", text)


@pytest.mark.parametrize("kernel", [all_that_is_allowed, literals, names_of_modules])
def test_what_is_allowed_agrees(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every construct that the checker lets pass does the same compiled and interpreted."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    signed, unsigned = rng.integers(-3, 9, 50), rng.integers(0, 3, 50, np.uint64)
    small, floats = rng.integers(0, 3, 50, np.uint8), rng.random(50)
    outs = {}
    for way in ("jit", "interpret"):
        monkeypatch.setenv("BOWSTRING_KERNELS", way)
        outs[way] = np.zeros(50, np.int64)
        signature, _ = match(kernel, (signed, unsigned, small, floats, outs[way]))
        check(signature)
        launch(kernel, 50, signed, unsigned, small, floats, outs[way])
    assert np.array_equal(outs["jit"], outs["interpret"])
    assert len(set(outs["jit"].tolist())) > 5


def test_literals_take_the_type_of_the_other_operand() -> None:
    """What is compiled has typed constants for literals, other ones for other arguments, in the same lines."""
    for kind, scalar in (("i64", i64), ("u64", u64)):
        copy = typed(plus_one, (kind,))
        assert copy.__globals__[f"{kind}(1)"].dtype == scalar
        assert copy(scalar(2)) == scalar(3)
        lines = [[line for *_, line in each.__code__.co_lines()] for each in (copy, plus_one)]
        assert lines[0] == lines[1]
    assert typed(added, ("i64", "i64")) is added


def plus_one(x: Any) -> Any:
    return x + PLAIN


def test_named_literals_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that was compiled with another value of a module's integer is never met."""
    before = fingerprint(plus_one)
    monkeypatch.setitem(globals(), "PLAIN", 2)
    assert fingerprint(plus_one) != before


def test_names_of_other_modules_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that was compiled with another constant of another module, or another function of it, is never met."""
    before = fingerprint(names_of_modules)
    with monkeypatch.context() as patch:
        patch.setattr(gather, "CODE", 7)
        assert fingerprint(names_of_modules) != before
    monkeypatch.setattr(words, "leading_zeros", words.negated)
    assert fingerprint(names_of_modules) != before
