"""Decoding Vortex gives what the rules of its encodings say, restated in plain NumPy, on the host and a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody
from bowstring.kernels.vortex import decode_numbers, decode_rows, decode_text, encode
from bowstring.kernels.vortex.faults import check_faults, new_faults
from bowstring.testing import fake_device

Array = np.ndarray[Any, Any]
ORDER = [0, 4, 2, 6, 1, 5, 3, 7]
PLACES = ["host", "device"]
SEEDS = st.integers(0, 2**32 - 1)


def put(place: str, array: Any) -> Any:
    """Return an array where a test wants it."""
    return (
        np.ascontiguousarray(array)
        if place == "host"
        else fake_device().from_host(np.ascontiguousarray(array))
    )


def got(array: Any) -> Array:
    """Return an array on the host."""
    return array if isinstance(array, np.ndarray) else fake_device().to_host(array)


def numbers(rng: np.random.Generator, count: int, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype, endpoint=True)


def position(row: int, lane: Any) -> Any:
    """Return where the element of a row and lane lies in its chunk."""
    return ORDER[row // 8] * 16 + row % 8 * 128 + lane


def plain_unpack(packed: Array, width: int, bits: int) -> Array:
    """Return chunks unpacked, by taking the bits of each lane as one long number."""
    lanes = 1024 // bits
    words = packed.view(f"u{bits // 8}").reshape(-1, width, lanes) if width else np.zeros((1, 0, lanes), "u1")
    out = np.zeros((len(words), 1024), f"u{bits // 8}")
    for chunk, content in enumerate(words):
        for lane in range(lanes):
            whole = sum(int(word) << bits * k for k, word in enumerate(content[:, lane]))
            for row in range(bits):
                out[chunk, position(row, lane)] = whole >> row * width & (1 << width) - 1
    return out.reshape(-1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@given(seed=SEEDS, data=st.data())
def test_packed_integers_are_unpacked(place: str, bits: int, seed: int, data: st.DataObject) -> None:
    """Of any width and slice, at any address, with zigzag and a reference."""
    rng = np.random.default_rng(seed)
    width = data.draw(st.integers(0, bits))
    offset, rows = data.draw(st.tuples(st.sampled_from([0, 1, 1023]), st.integers(0, 1100)))
    zigzag, reference = data.draw(st.tuples(st.booleans(), st.integers(-(2**63), 2**64 - 1)))
    chunks = -(-(offset + rows) // 1024)
    raw = numbers(rng, chunks * width * 128 + 3, np.uint8)
    expected = plain_unpack(raw[3:], width, bits) if width else np.zeros(chunks * 1024, f"u{bits // 8}")
    one = expected.dtype.type(1)
    if zigzag:
        expected = (expected >> one) ^ (expected.dtype.type(0) - (expected & one))
    expected = expected + expected.dtype.type(reference & (1 << bits) - 1)
    packed = put(place, raw)[3:]
    faults = new_faults(packed)
    found = decode_numbers.unpack(
        packed,
        width,
        f"i{bits // 8}",
        rows,
        offset=offset,
        adjustment=decode_numbers.Adjustment(zigzag, reference),
        faults=faults,
    )
    assert got(found).dtype == f"i{bits // 8}"
    assert np.array_equal(got(found).view(expected.dtype), expected[offset : offset + rows])
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@given(seed=SEEDS, widths=st.lists(st.integers(0, 16), min_size=1, max_size=3))
def test_chunks_have_widths_of_their_own(place: str, seed: int, widths: list[int]) -> None:
    """Where a table says where each chunk begins; and references of each chunk are added to its elements."""
    rng = np.random.default_rng(seed)
    pieces = [numbers(rng, 128 * width, np.uint8) for width in widths]
    references = numbers(rng, len(widths), np.uint16)
    parts = [plain_unpack(each, width, 16)[:1024] for each, width in zip(pieces, widths, strict=True)]
    expected = np.concatenate([each + reference for each, reference in zip(parts, references, strict=True)])
    packed = put(place, np.concatenate(pieces))
    faults = new_faults(packed)
    starts = put(place, np.concatenate([[0], np.cumsum([128 * width for width in widths])]))
    adjustment = decode_numbers.Adjustment(reference=put(place, references))
    found = decode_numbers.unpack(
        packed, 0, np.uint16, len(expected), starts=starts, adjustment=adjustment, faults=faults
    )
    assert np.array_equal(got(found), expected)
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [32, 64])
@given(seed=SEEDS, width=st.integers(0, 64), exponents=st.tuples(st.integers(0, 10), st.integers(0, 10)))
def test_alp_is_exact(place: str, bits: int, seed: int, width: int, exponents: tuple[int, int]) -> None:
    """Unpacked or plain, an integer times 10^f times 10^-e has the bits that NumPy's products have."""
    rng = np.random.default_rng(seed)
    width = min(width, bits)
    float_ = np.dtype(f"f{bits // 8}")
    raw = numbers(rng, 1024 * max(width, 1) // 8, np.uint8)
    whole = plain_unpack(raw, width, bits) if width else np.zeros(1024, f"u{bits // 8}")
    signed = (whole - whole.dtype.type(5)).view(f"i{bits // 8}")
    e, f = exponents
    expected = signed.astype(float_) * float_.type(f"1e{f}") * float_.type(f"1e-{e}")
    packed = put(place, raw)
    faults = new_faults(packed)
    adjustment = decode_numbers.Adjustment(reference=-5, exponents=(e, f))
    found = decode_numbers.unpack(packed, width, signed.dtype, 1000, adjustment=adjustment, faults=faults)
    assert got(found).tobytes() == expected[:1000].tobytes()
    assert got(decode_numbers.adjust(put(place, whole), adjustment)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("place", PLACES)
@given(seed=SEEDS, kind=st.sampled_from(["u1", "u2", "u4", "u8"]), zigzag=st.booleans())
def test_plain_integers_are_adjusted(place: str, seed: int, kind: str, zigzag: bool) -> None:
    """Zigzag and references mean the same for integers that are not packed."""
    rng = np.random.default_rng(seed)
    values, references = numbers(rng, 2500, kind), numbers(rng, 3, kind)
    one = values.dtype.type(1)
    expected = (values >> one) ^ (values.dtype.type(0) - (values & one)) if zigzag else values
    expected = expected + np.repeat(references, 1024)[:2500]
    found = decode_numbers.adjust(
        put(place, values), decode_numbers.Adjustment(zigzag, put(place, references))
    )
    assert np.array_equal(got(found), expected)


@pytest.mark.parametrize("place", PLACES)
@given(
    seed=SEEDS,
    kind=st.sampled_from(["i1", "u2", "f4", "f8"]),
    index=st.sampled_from(["u1", "u2", "u4", "u8"]),
)
def test_patches_replace(place: str, seed: int, kind: str, index: str) -> None:
    """A patch lies at its index less the offset; one that lies elsewhere is a fault, and changes nothing."""
    rng = np.random.default_rng(seed)
    plain = numbers(rng, 120, f"u{kind[1]}").view(kind)
    at = np.sort(rng.permutation(120)[:40]).astype(index)
    values = numbers(rng, 40, f"u{kind[1]}").view(kind)
    expected = plain.copy()
    expected[at] = values
    out = put(place, plain.copy())
    faults = new_faults(out)
    decode_rows.patch(out, put(place, at + at.dtype.type(30)), put(place, values), offset=30, faults=faults)
    assert got(out).tobytes() == expected.tobytes()
    check_faults(got(faults))
    decode_rows.patch(
        out, put(place, at[:2] * 0 + at.dtype.type(29)), put(place, values[:2]), offset=30, faults=faults
    )
    assert got(out).tobytes() == expected.tobytes()
    with pytest.raises(InvalidBody, match="patch"):
        check_faults(got(faults), "column a")


@pytest.mark.parametrize("place", PLACES)
@given(
    seed=SEEDS, code=st.sampled_from(["u1", "u2", "i4", "u8"]), kind=st.sampled_from(["u1", "i2", "f4", "u8"])
)
def test_codes_are_looked_up(place: str, seed: int, code: str, kind: str) -> None:
    """Null rows may have any code; another that points at nothing is a fault, and gives 0."""
    rng = np.random.default_rng(seed)
    values = numbers(rng, 100, f"u{kind[1]}").view(kind)
    codes = rng.integers(0, 100, 300).astype(code)
    valid = rng.random(300) < 0.8
    wild = np.where(valid, codes, codes.dtype.type(120))
    bits = put(place, np.packbits(valid, bitorder="little"))
    faults = new_faults(bits)
    found = decode_rows.take(put(place, wild), put(place, values), validity=bits, faults=faults)
    assert np.array_equal(got(found)[valid], values[codes[valid]], equal_nan=True)
    assert not got(found)[~valid].any()
    wide = numbers(rng, 200, np.uint64)
    found = decode_rows.take(put(place, wild), put(place, wide), validity=bits, words=2, faults=faults)
    assert np.array_equal(got(found).reshape(-1, 2)[valid], wide.reshape(-1, 2)[codes[valid]])
    check_faults(got(faults))
    flags = rng.random(110) < 0.5
    bitmap = put(place, np.packbits(flags, bitorder="little"))
    found = np.unpackbits(got(decode_rows.take_bits(put(place, wild), bitmap, 10, 100)), bitorder="little")
    assert np.array_equal(found[:300][valid], flags[10:][codes[valid]])
    decode_rows.take(put(place, wild), put(place, values), faults=faults)
    assert got(faults).any() == (not valid.all())


@pytest.mark.parametrize("place", PLACES)
@given(
    seed=SEEDS, end=st.sampled_from(["u1", "u2", "u4", "u8"]), kind=st.sampled_from(["u1", "i2", "f4", "u8"])
)
def test_runs_are_expanded(place: str, seed: int, end: str, kind: str) -> None:
    """A row has the value of the first run that ends behind it; a row behind all of them is a fault."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 12, 20)
    if end != "u1":
        counts[rng.integers(0, 20)] += 3000
    values = numbers(rng, 20, f"u{kind[1]}").view(kind)
    ends = np.cumsum(counts)
    expected = np.repeat(values, counts)
    offset = int(rng.integers(0, counts[0]))
    rows = int(rng.integers(0, ends[-1] - offset + 1))
    place_ends, place_values = put(place, ends.astype(end)), put(place, values)
    faults = new_faults(place_values)
    found = decode_rows.expand_runs(place_ends, place_values, rows, offset=offset, faults=faults)
    assert got(found).tobytes() == expected[offset : offset + rows].tobytes()
    check_faults(got(faults))
    decode_rows.expand_runs(place_ends, place_values, int(ends[-1]) + 1, faults=faults)
    with pytest.raises(InvalidBody, match="runs"):
        check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@given(seed=SEEDS, index=st.sampled_from(["u1", "u2"]), kind=st.sampled_from(["u1", "i2", "f4", "u8"]))
def test_blocks_of_run_lengths_are_expanded(place: str, seed: int, index: str, kind: str) -> None:
    """Each 1,024 rows choose from values of their own, the last where an index is too large."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 200, 3)
    values = numbers(rng, counts.sum(), f"u{kind[1]}").view(kind)
    indices = rng.integers(0, 210, 3 * 1024).astype(index)
    firsts = np.cumsum(counts) - counts
    chosen = np.minimum(indices.reshape(3, 1024), counts[:, None] - 1) + firsts[:, None]
    expected = values[chosen].reshape(-1)
    offset, rows = 700, 2300
    there = put(place, values)
    faults = new_faults(there)
    starts = put(place, (firsts + 50).astype(np.uint32))
    found = decode_rows.expand_rle(put(place, indices), there, starts, rows, offset=offset, faults=faults)
    assert got(found).tobytes() == expected[offset : offset + rows].tobytes()
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [4, 8])
@given(seed=SEEDS, more=st.integers(0, 15))
def test_halves_of_floats_are_joined(place: str, size: int, seed: int, more: int) -> None:
    """The left bits by their code or by a patch, the right bits as they are."""
    rng = np.random.default_rng(seed)
    right_bits = 8 * size - 16 + more
    lefts = rng.integers(0, 1 << 16 - more, 6)
    codes = rng.integers(0, 6, 200).astype(np.uint16)
    rights = numbers(rng, 200, f"u{size}") & np.dtype(f"u{size}").type((1 << right_bits) - 1)
    at = np.sort(rng.permutation(200)[:20])
    other = rng.integers(0, 1 << 16 - more, 20)
    whole = [int(lefts[code]) << right_bits | int(right) for code, right in zip(codes, rights, strict=True)]
    for row, left in zip(at, other, strict=True):
        whole[row] = int(left) << right_bits | int(rights[row])
    there = put(place, rights)
    faults = new_faults(there)
    patches = put(place, (at + 9).astype(np.uint8)), put(place, other.astype(np.uint16)), 9
    found = decode_numbers.join_halves(
        put(place, codes), there, lefts.tolist(), right_bits, patches=patches, faults=faults
    )
    assert got(found).dtype == f"f{size}"
    assert got(found).tobytes() == np.array(whole, f"u{size}").tobytes()
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@given(
    kind=st.sampled_from(["u1", "i2", "u4", "i8"]),
    base=st.integers(-(2**63), 2**64 - 1),
    step=st.integers(-(2**63), 2**63 - 1),
)
def test_sequences_wrap(place: str, kind: str, base: int, step: int) -> None:
    """An element is the base and so many steps, without the bits that its type lacks."""
    bits = 8 * int(kind[1])
    expected = np.array([(base + k * step) % 2**bits for k in range(40)], f"u{kind[1]}").view(kind)
    found = got(decode_numbers.sequence(put(place, np.zeros(1)), base, step, kind, 40))
    assert found.dtype == kind
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@given(seed=SEEDS)
def test_differences_are_added(place: str, size: int, seed: int) -> None:
    """Along each lane of a chunk, whose elements then come in their own order."""
    rng = np.random.default_rng(seed)
    lanes = 128 // size
    bases, differences = numbers(rng, 2 * lanes, f"u{size}"), numbers(rng, 2048, f"u{size}")
    transposed, expected = np.zeros((2, 2048), f"u{size}")
    for chunk in range(2):
        for lane in range(lanes):
            total = int(bases[chunk * lanes + lane])
            for row in range(8 * size):
                at = chunk * 1024 + position(row, lane)
                total += int(differences[at])
                transposed[at] = total % 256**size
        for k in range(1024):
            natural = k % 16 * 64 + ORDER[k // 16 % 8] * 8 + k // 128
            expected[chunk * 1024 + natural] = transposed[chunk * 1024 + k]
    there = put(place, differences)
    faults = new_faults(there)
    found = decode_numbers.undelta(put(place, bases), there, 1500, offset=30, faults=faults)
    assert np.array_equal(got(found), expected[30:1530])
    check_faults(got(faults))
    decode_numbers.undelta(put(place, bases[1:]), there, 1500, faults=faults)
    assert got(faults).any()


@pytest.mark.parametrize("place", PLACES)
@given(seed=SEEDS, kind=st.sampled_from(["i1", "u2", "i4", "u8"]))
def test_parts_of_times_are_added(place: str, seed: int, kind: str) -> None:
    """Days, seconds and what is below make one number; a part may be the same for all rows."""
    rng = np.random.default_rng(seed)
    days = numbers(rng, 50, kind) % 100
    expected = days.astype(np.int64) * 86_400_000 + 5_000 + np.arange(50)
    there = put(place, days.astype(kind))
    parts = [(there, 86_400_000), (5, 1000), (put(place, np.arange(50, dtype=np.uint8)), 1)]
    assert np.array_equal(got(decode_numbers.add_parts(parts, 50, beside=there)), expected)


@pytest.mark.parametrize("place", PLACES)
@given(seed=SEEDS, size=st.sampled_from([1, 2, 4, 8]), words=st.sampled_from([2, 4]))
def test_numbers_are_widened(place: str, seed: int, size: int, words: int) -> None:
    """A signed number of several words has the sign in all of them."""
    values = numbers(np.random.default_rng(seed), 30, f"i{size}")
    expected = b"".join(int(each).to_bytes(8 * words, "little", signed=True) for each in values)
    assert got(decode_numbers.widen(put(place, values), words)).tobytes() == expected


@pytest.mark.parametrize("place", PLACES)
@given(data=st.data())
def test_symbols_make_text(place: str, data: st.DataObject) -> None:
    """Codes of FSST stand for symbols, and 255 for the byte that follows; lengths must be right."""
    symbols = data.draw(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=30))
    code = st.one_of(
        st.integers(0, len(symbols) - 1).map(lambda k: (bytes([k]), symbols[k])),
        st.binary(min_size=1, max_size=1).map(lambda byte: (b"\xff" + byte, byte)),
    )
    rows = data.draw(st.lists(st.lists(code, max_size=12), min_size=1, max_size=12))
    codes = [b"".join(each for each, _ in row) for row in rows]
    texts = [b"".join(each for _, each in row) for row in rows]
    lengths = put(place, np.array([len(each) for each in texts], np.uint32))
    offsets = decode_text.offsets_of(lengths)
    assert got(offsets).tolist() == np.concatenate([[0], np.cumsum([len(each) for each in texts])]).tolist()
    arguments = (
        put(place, np.frombuffer(b"".join(codes), np.uint8)),
        put(place, np.concatenate([[0], np.cumsum([len(each) for each in codes])]).astype(np.uint32)),
        put(place, np.frombuffer(b"".join(each.ljust(8, b"\0") for each in symbols), np.uint8)),
        put(place, np.array([len(each) for each in symbols], np.uint8)),
    )
    size = sum(map(len, texts))
    faults = new_faults(lengths)
    assert got(decode_text.decode_fsst(*arguments, offsets, size, faults=faults)).tobytes() == b"".join(texts)
    check_faults(got(faults))
    more = offsets + np.int64(1)
    decode_text.decode_fsst(*arguments, more, size + 1, faults=faults)
    check_faults(got(faults))  # the same lengths at another place
    wrong = put(place, np.concatenate([[0], got(offsets)[1:] + 1]))
    decode_text.decode_fsst(*arguments, wrong, size + 1, faults=faults)
    with pytest.raises(InvalidBody, match="length"):
        check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@given(data=st.data(), kind=st.sampled_from(["u1", "u2", "u4", "u8"]))
def test_tokens_make_text(place: str, data: st.DataObject, kind: str) -> None:
    """Codes of OnPair stand for tokens of a dictionary."""
    tokens = data.draw(st.lists(st.binary(max_size=16), min_size=1, max_size=30))
    code = st.integers(0, len(tokens) - 1)
    rows = data.draw(st.lists(st.lists(code, max_size=12), min_size=1, max_size=12))
    texts = [b"".join(tokens[each] for each in row) for row in rows]
    codes = put(place, np.array([each for row in rows for each in row], kind))
    ends = put(place, np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.uint16))
    slack = data.draw(st.sampled_from([0, 16]))
    held = put(place, np.frombuffer(b"".join(tokens) + bytes(slack), np.uint8))
    starts = put(place, np.concatenate([[0], np.cumsum([len(each) for each in tokens])]).astype(np.uint32))
    offsets = put(place, np.concatenate([[0], np.cumsum([len(each) for each in texts])]).astype(np.int64))
    size = sum(map(len, texts))
    faults = new_faults(offsets)
    found = decode_text.decode_onpair(codes, ends, held, starts, offsets, size, faults=faults)
    assert got(found).tobytes() == b"".join(texts)
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@given(
    texts=st.lists(st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=70), wide=st.booleans()
)
def test_values_get_views(place: str, texts: list[bytes | None], wide: bool) -> None:
    """Up to twelve bytes lie in the view; of longer values, four and the place of all."""
    ends = np.cumsum([0, *(len(each or b"") for each in texts)]).astype(np.int64 if wide else np.int32)
    expected = b""
    for start, each in zip(ends, texts, strict=False):
        value = each or b""
        behind = (
            value.ljust(12, b"\0")
            if len(value) <= 12
            else value[:4] + int(int(start) << 32 | 7).to_bytes(8, "little")
        )
        expected += len(value).to_bytes(4, "little") + behind
    data = put(place, np.frombuffer(b"".join(each or b"" for each in texts), np.uint8))
    faults = new_faults(data)
    found = decode_text.make_views(put(place, ends), data, buffer=7, faults=faults)
    assert got(found).tobytes() == expected
    check_faults(got(faults))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@given(seed=SEEDS, rows=st.integers(0, 2100), zigzag=st.booleans(), data=st.data())
def test_what_is_packed_is_unpacked(
    place: str, size: int, seed: int, rows: int, zigzag: bool, data: st.DataObject
) -> None:
    """Packed integers have the values of a lane one behind the other, and come back as they were."""
    width = data.draw(st.integers(0, 8 * size))
    rng, kind = np.random.default_rng(seed), np.dtype(f"u{size}")
    small = numbers(rng, rows, kind) & kind.type((1 << width) - 1)
    reference = data.draw(st.integers(-(2**63), 2**63))
    values = small + kind.type(reference & 256**size - 1)
    one = kind.type(1)
    if zigzag:
        values = (values >> one) ^ (kind.type(0) - (values & one))
    packed = encode.pack(put(place, values), width, reference=reference, zigzag=zigzag)
    assert len(packed) == -(-rows // 1024) * width * 128
    if width and rows:
        assert np.array_equal(plain_unpack(got(packed), width, 8 * size)[:rows], small)
    faults = new_faults(packed)
    adjustment = decode_numbers.Adjustment(reference=reference)
    found = decode_numbers.unpack(packed, width, kind, rows, adjustment=adjustment, faults=faults)
    if zigzag:
        found = decode_numbers.adjust(found, decode_numbers.Adjustment(zigzag=True))
    assert np.array_equal(got(found), values)


@pytest.mark.parametrize("place", PLACES)
@given(
    texts=st.lists(
        st.one_of(st.binary(max_size=30), st.sampled_from([b"bowstring", b"bow\0", b"string of bows"]))
    )
)
def test_encoded_text_is_decoded(place: str, texts: list[bytes]) -> None:
    """Text that is encoded by the symbols that were found in it comes back, also what has no symbol."""
    ends = np.concatenate([[0], np.cumsum([len(each) for each in texts])]).astype(np.int64)
    sample = texts[: len(texts) // 2]
    table = encode.train_fsst(np.frombuffer(b"".join(sample), np.uint8), ends[: len(sample) + 1])
    offsets = put(place, ends)
    text = put(place, np.frombuffer(b"".join(texts), np.uint8))
    codes, places = encode.encode_fsst(text, offsets, table)
    faults = new_faults(offsets)
    symbols = put(place, table.symbols.view(np.uint8)), put(place, table.lengths)
    found = decode_text.decode_fsst(codes, places, *symbols, offsets, int(ends[-1]), faults=faults)
    assert got(found).tobytes() == b"".join(texts)
    check_faults(got(faults))


def test_claims_of_packed_data_are_checked_at_once() -> None:
    """Widths, offsets, exponents and sizes that the host can check are refused before anything is launched."""
    packed = np.zeros(128, np.uint8)
    faults = new_faults(packed)
    for arguments, what in (
        ((packed, 33, np.int32, 10), "bit width"),
        ((packed, -1, np.int32, 10), "bit width"),
        ((packed, 2, np.int32, 10), "too short"),
        ((packed, 1, np.int32, 1025), "too short"),
    ):
        with pytest.raises(InvalidBody, match=what):
            decode_numbers.unpack(*arguments, faults=faults)
    with pytest.raises(InvalidBody, match="offset"):
        decode_numbers.unpack(packed, 1, np.int32, 10, offset=1024, faults=faults)
    for exponents in ((24, 0), (0, 24), (-1, 0)):
        with pytest.raises(InvalidBody, match="exponent"):
            decode_numbers.scale(np.zeros(1, np.int64), exponents)


def test_tables_of_chunks_that_point_outside_are_a_fault() -> None:
    """A chunk that would begin or end outside of the data is not unpacked, and is noted."""
    packed = np.zeros(1024, np.uint8)
    for starts in ([0, 1024 + 128], [-128, 0], [0], [256, 0]):
        faults = new_faults(packed)
        decode_numbers.unpack(packed, 0, np.uint8, 1024, starts=np.array(starts), faults=faults)
        with pytest.raises(InvalidBody, match="shorter"):
            check_faults(faults)
