"""Random trees of encodings: every encoding over every type that it takes, inside each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.kernels.vortex.encode import encode_fsst, train_fsst
from bowstring.vortex.dtype import BOOL, PTYPES, DType, Kind, primitive
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import BYTES, VARINT, Scalar, encode, encode_scalar

__all__ = ["TYPES", "Trees"]

CHUNK = 1024
INTEGERS = tuple(primitive(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"))
FLOATS = tuple(primitive(name) for name in ("f2", "f4", "f8"))
TEXTS = (DType(Kind.UTF8), DType(Kind.BINARY))
DECIMALS = tuple(DType(Kind.DECIMAL, precision=each, scale=2) for each in (4, 9, 18, 30, 60))
TIMESTAMPS = tuple(
    DType(Kind.EXTENSION, children=(primitive("i8"),), id="vortex.timestamp", metadata=bytes([unit, 0, 0]))
    for unit in range(4)
)
DATE = DType(Kind.EXTENSION, children=(primitive("i4"),), id="vortex.date", metadata=bytes([4]))
STRUCT = DType(Kind.STRUCT, names=("a", "b"), children=(primitive("i4"), DType(Kind.UTF8, True)))
NESTED = (
    STRUCT,
    DType(Kind.LIST, children=(primitive("i2", True),)),
    DType(Kind.LIST, children=(DType(Kind.UTF8),)),
    DType(Kind.FIXED_SIZE_LIST, children=(primitive("f8", True),), size=3),
)
TYPES = (BOOL, *INTEGERS, *FLOATS, *TEXTS, *DECIMALS, *TIMESTAMPS, DATE, *NESTED)
"""Types of all kinds, none of them nullable."""


def fields(**items: int | bytes | None) -> bytes:
    """Return a message; `f3=7` is its field 3, and ``None`` is left out."""
    return encode(
        [
            (int(name[1:]), BYTES if isinstance(value, bytes) else VARINT, value)
            for name, value in items.items()
            if value is not None
        ]
    )


class Trees:
    """Makes random arrays of a type."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def array(self, dtype: DType, rows: int, depth: int) -> Piece:
        """Return an array of so many rows with at most so many encodings inside each other."""
        names = ["canonical"]
        if depth > 0 and rows:
            names += ["constant", "dictionary", "runs", "sparse", "chunked"]
            names += ["masked"] if dtype.nullable else []
            names += {
                Kind.PRIMITIVE: self._of_numbers(dtype),
                Kind.DECIMAL: ["decimal_parts", "decimal_parts_2"],
                Kind.UTF8: ["fsst", "onpair"],
                Kind.BINARY: ["fsst", "onpair"],
                Kind.BOOL: ["bytes_of_bool"],
                Kind.LIST: ["list_view"],
                Kind.EXTENSION: ["times"] if dtype.id == "vortex.timestamp" else [],
            }.get(dtype.kind, [])
        chosen = str(self._rng.choice(names))
        made: Piece = getattr(self, f"_{chosen}")(dtype, rows, depth - 1)
        return made

    def _of_numbers(self, dtype: DType) -> list[str]:
        kind, size = dtype.numpy.kind, dtype.numpy.itemsize
        if kind == "f":
            return ["rle"] + (["alp", "alp_rd"] if size > 2 else [])
        own = ["packed", "packed_by_chunk", "frame", "frames", "rle", "delta"]
        return own + ([] if dtype.nullable else ["sequence"]) + (["zigzag"] if kind == "i" else [])

    # What children are made of

    def _count(self, most: int) -> int:
        return int(self._rng.integers(0, most, endpoint=True))

    def _valid(self, dtype: DType, rows: int, depth: int) -> tuple[Piece, ...]:
        if not dtype.nullable or self._rng.random() < 0.3:
            return ()
        return (self.array(BOOL, rows, min(depth, 1)),)

    def _numbers(self, values: Any, dtype: DType, depth: int) -> Piece:
        """Return given numbers, encoded somehow."""
        values = np.ascontiguousarray(np.asarray(values).astype(dtype.numpy))
        plain = Piece("vortex.primitive", buffers=((values, values.itemsize),))
        if depth < 0 or not len(values) or values.dtype.kind == "f":
            return plain
        unsigned = values.view(f"<u{values.itemsize}")
        chosen = self._count(4)
        if chosen == 1:
            return self._bits_of(unsigned, int(unsigned.max()).bit_length(), 0, b"", ())
        if chosen == 2:
            with np.errstate(over="ignore"):
                inner = self._numbers(values - values.min(), dtype, depth - 1)
            return Piece("fastlanes.for", encode_scalar(int(values.min()), dtype), (), (inner,))
        if chosen == 3:
            distinct, codes = np.unique(values, return_inverse=True)
            children = (
                self._numbers(codes, primitive("u4"), -1),
                self._numbers(distinct, dtype, depth - 1),
            )
            return Piece("vortex.dict", fields(f1=len(distinct), f2=2, f3=0), (), children)
        if chosen == 4 and (values == values[0]).all():
            return Piece("vortex.constant", buffers=((encode_scalar(int(values[0]), dtype), 1),))
        return plain

    def _unsigned(self, most: int) -> DType:
        """Return an unsigned type that holds a number."""
        fitting = [each for each in INTEGERS[:4] if most < 1 << 8 * each.numpy.itemsize]
        return fitting[self._count(len(fitting) - 1)]

    def _patches(
        self, dtype: DType, rows: int, depth: int, *, offsets: bool = False
    ) -> tuple[bytes, tuple[Piece, ...]]:
        offset = self._count(50)
        count = min(rows, 1 + self._count(20))
        at = np.sort(self._rng.choice(rows, count, replace=False)) + offset
        kind = self._unsigned(rows + offset)
        children = [self._numbers(at, kind, depth), self.array(dtype, count, min(depth, 0))]
        number: int | None = None
        if offsets and offset == 0 and self._rng.random() < 0.5:
            number = -(-rows // CHUNK)
            starts = np.searchsorted(at, np.arange(number) * CHUNK)
            children.append(self._numbers(starts, primitive("u8"), 0))
        metadata = fields(f1=count, f2=offset, f3=kind.ptype, f4=number, f5=None if number is None else 3)
        return metadata, tuple(children)

    def _scalar(self, dtype: DType, depth: int = 2) -> Scalar:
        if dtype.nullable and self._rng.random() < 0.3:
            return None
        dtype = dtype.storage
        if dtype.kind is Kind.BOOL:
            return bool(self._count(1))
        if dtype.kind is Kind.PRIMITIVE:
            value = self._values(dtype, 1)
            return int(value.view(f"u{value.itemsize}")[0]) if value.dtype.kind == "f" else int(value[0])
        if dtype.kind is Kind.DECIMAL:
            return self._count(1000) - 500
        if dtype.kind in (Kind.UTF8, Kind.BINARY):
            return self._text()
        count = len(dtype.children) if dtype.kind is Kind.STRUCT else self._count(3)
        count = dtype.size if dtype.kind is Kind.FIXED_SIZE_LIST else count
        types = dtype.children if dtype.kind is Kind.STRUCT else dtype.children * count
        return [self._scalar(each, depth - 1) for each in types]

    def _values(self, dtype: DType, rows: int) -> Any:
        kind = dtype.numpy
        if kind.kind == "f":
            some = self._rng.choice([0.0, -0.0, 1.5, 0.1, 1e4, -7.25, np.inf], rows)
            return np.where(self._rng.random(rows) < 0.5, some, self._rng.normal(size=rows)).astype(kind)
        whole = self._rng.integers(0, 1 << 64, rows, np.uint64).astype(f"<u{kind.itemsize}")
        return (whole >> whole.dtype.type(self._count(8 * kind.itemsize - 1))).view(kind)

    def _text(self) -> bytes:
        words = [b"", b"bow", b"string", "ä€".encode(), b"a text of more than twelve bytes", b"\0"]
        return b" ".join(words[self._count(5)] for _ in range(self._count(3)))

    # Encodings

    def _canonical(self, dtype: DType, rows: int, depth: int) -> Piece:
        kind = dtype.kind
        if kind is Kind.EXTENSION:
            return Piece("vortex.ext", children=(self._times_within(dtype, rows, depth),))
        valid = self._valid(dtype, rows, depth)
        if kind is Kind.BOOL:
            skipped = self._count(7)
            data = self._rng.integers(0, 256, (skipped + rows + 7) // 8, np.uint8)
            return Piece("vortex.bool", fields(f1=skipped), ((data, 1),), valid)
        if kind is Kind.PRIMITIVE:
            values = self._values(dtype, rows)
            return Piece("vortex.primitive", buffers=((values, values.itemsize),), children=valid)
        if kind is Kind.DECIMAL:
            return self._decimal(dtype, rows, valid)
        if kind in (Kind.UTF8, Kind.BINARY):
            return self._plain_text(rows, depth, valid)
        if kind is Kind.STRUCT:
            inner = (self.array(each, rows, depth) for each in dtype.children)
            return Piece("vortex.struct", children=(*valid, *inner))
        if kind is Kind.FIXED_SIZE_LIST:
            elements = self.array(dtype.children[0], rows * dtype.size, depth)
            return Piece("vortex.fixed_size_list", children=(elements, *valid))
        offsets = self._offsets(rows)
        held = int(offsets[-1]) + self._count(3)
        children = (
            self.array(dtype.children[0], held, depth),
            self._numbers(offsets, primitive("u4"), depth),
            *valid,
        )
        return Piece("vortex.list", fields(f1=held, f2=2), (), children)

    def _times_within(self, dtype: DType, rows: int, depth: int) -> Piece:
        # Of what years a calendar holds.
        values = (
            self._rng.integers(-10_000, 10_000, rows)
            if dtype.id == "vortex.date"
            else (self._rng.integers(-(1 << 30), 1 << 30, rows))
        )
        storage = dtype.children[0]
        plain = np.asarray(values, storage.numpy)
        return Piece(
            "vortex.primitive", buffers=((plain, plain.itemsize),), children=self._valid(dtype, rows, depth)
        )

    def _offsets(self, rows: int) -> Any:
        return np.cumsum([self._count(3), *self._rng.integers(0, 4, rows)])

    def _decimal(self, dtype: DType, rows: int, valid: tuple[Piece, ...]) -> Piece:
        width = self._count(5) if dtype.precision > 38 else min(self._count(4), 4)
        size = 1 << width
        values = self._rng.integers(-100, 100, rows)
        data = b"".join(int(each).to_bytes(size, "little", signed=True) for each in values.tolist())
        return Piece("vortex.decimal", fields(f1=width), ((data, size),), valid)

    def _plain_text(self, rows: int, depth: int, valid: tuple[Piece, ...]) -> Piece:
        texts = [self._text() for _ in range(rows)]
        data, offsets = b"".join(texts), np.cumsum([0, *map(len, texts)])
        if self._rng.random() < 0.5:
            views = b"".join(
                len(each).to_bytes(4, "little")
                + (
                    each.ljust(12, b"\0")
                    if len(each) <= 12
                    else each[:4] + b"\0" * 4 + int(at).to_bytes(4, "little")
                )
                for each, at in zip(texts, offsets, strict=False)
            )
            return Piece("vortex.varbinview", b"", ((data, 1), (views, 16)), valid)
        kind = [*(each for each in INTEGERS if each.numpy.itemsize >= 4)][self._count(3)]
        shift = self._count(3)
        children = (self._numbers(offsets + shift, kind, depth), *valid)
        return Piece("vortex.varbin", fields(f1=kind.ptype), ((b"x" * shift + data, 1),), children)

    def _constant(self, dtype: DType, rows: int, depth: int) -> Piece:
        return Piece("vortex.constant", buffers=((encode_scalar(self._scalar(dtype), dtype), 1),))

    def _dictionary(self, dtype: DType, rows: int, depth: int) -> Piece:
        held = 1 + self._count(9)
        kind = self._unsigned(held)
        codes = self._rng.integers(0, held, rows)
        nullable = dtype.nullable and self._rng.random() < 0.5
        encoded = self._numbers(codes, kind, depth if not nullable else -1)
        if nullable:
            encoded = encoded._replace(children=self._valid(kind.as_nullable(True), rows, depth))
        metadata = fields(f1=held, f2=kind.ptype, f3=int(nullable))
        return Piece("vortex.dict", metadata, (), (encoded, self.array(dtype, held, depth)))

    def _runs(self, dtype: DType, rows: int, depth: int) -> Piece:
        skipped = self._count(20)
        inner = self._rng.choice(
            np.arange(skipped + 1, skipped + rows), self._count(min(rows - 1, 9)), replace=False
        )
        ends = np.append(np.sort(inner), skipped + rows + self._count(3)) if rows else np.array([skipped + 1])
        kind = self._unsigned(int(ends[-1]))
        metadata = fields(f1=kind.ptype, f2=len(ends), f3=skipped)
        children = (self._numbers(ends, kind, depth), self.array(dtype, len(ends), depth))
        return Piece("vortex.runend", metadata, (), children)

    def _sparse(self, dtype: DType, rows: int, depth: int) -> Piece:
        metadata, children = self._patches(dtype, rows, depth)
        fill = encode_scalar(self._scalar(dtype), dtype)
        return Piece("vortex.sparse", fields(f1=metadata), ((fill, 1),), children)

    def _masked(self, dtype: DType, rows: int, depth: int) -> Piece:
        inner = self.array(dtype.as_nullable(False), rows, depth)
        return Piece("vortex.masked", children=(inner, *self._valid(dtype, rows, depth)))

    def _chunked(self, dtype: DType, rows: int, depth: int) -> Piece:
        cuts = np.sort(self._rng.integers(0, rows, self._count(2)))
        bounds = np.concatenate([[0], cuts, [rows]])
        parts = (self.array(dtype, int(each), depth) for each in np.diff(bounds))
        return Piece("vortex.chunked", children=(self._numbers(bounds, primitive("u8"), -1), *parts))

    def _packed(self, dtype: DType, rows: int, depth: int) -> Piece:
        bits, skipped = 8 * dtype.numpy.itemsize, self._count(1023)
        width = self._count(bits)
        values = self._rng.integers(0, 1 << 64, skipped + rows, np.uint64).astype(f"<u{bits // 8}")
        metadata: bytes = b""
        children: tuple[Piece, ...] = ()
        if self._rng.random() < 0.5:
            metadata, children = self._patches(dtype, rows, depth, offsets=not skipped)
        return self._bits_of(values, width, skipped, metadata, (*children, *self._valid(dtype, rows, depth)))

    def _bits_of(
        self, values: Any, width: int, skipped: int, patches: bytes, children: tuple[Piece, ...]
    ) -> Piece:
        from bowstring.kernels.vortex.encode import pack

        metadata = fields(f1=width, f2=skipped, f3=patches or None)
        data = pack(values, width) if width else np.empty(0, np.uint8)
        return Piece("fastlanes.bitpacked", metadata, ((data, values.itemsize),), children)

    def _packed_by_chunk(self, dtype: DType, rows: int, depth: int) -> Piece:
        from bowstring.kernels.vortex.encode import pack

        bits, skipped = 8 * dtype.numpy.itemsize, self._count(1023)
        chunks = -(-(skipped + rows) // CHUNK)
        values = self._rng.integers(0, 1 << 64, chunks * CHUNK, np.uint64).astype(f"<u{bits // 8}")
        widths = self._rng.integers(1, bits, chunks, endpoint=True)
        data = [pack(values[at * CHUNK : (at + 1) * CHUNK], int(each)) for at, each in enumerate(widths)]
        offsets = self._numbers(np.cumsum([0, *widths * 128]), primitive("u4"), -1)
        metadata: bytes | None = None
        children: tuple[Piece, ...] = ()
        if self._rng.random() < 0.5:
            metadata, children = self._patches(dtype, rows, depth)
        return Piece(
            "fastlanes.bitpacked.v2",
            fields(f1=skipped, f2=2, f3=metadata),
            ((np.concatenate([np.empty(0, np.uint8), *data]), bits // 8),),
            (*children, *self._valid(dtype, rows, depth), offsets),
        )

    def _frame(self, dtype: DType, rows: int, depth: int) -> Piece:
        scalar = encode_scalar(self._scalar(dtype.as_nullable(False)), dtype)
        return Piece("fastlanes.for", scalar, (), (self.array(dtype, rows, depth),))

    def _frames(self, dtype: DType, rows: int, depth: int) -> Piece:
        references = self.array(dtype.as_nullable(False), -(-rows // CHUNK), 0)
        return Piece("fastlanes.for.v2", b"", (), (self.array(dtype, rows, depth), references))

    def _zigzag(self, dtype: DType, rows: int, depth: int) -> Piece:
        inner = primitive(f"u{dtype.numpy.itemsize}", dtype.nullable)
        return Piece("vortex.zigzag", children=(self.array(inner, rows, depth),))

    def _sequence(self, dtype: DType, rows: int, depth: int) -> Piece:
        first, step = self._count(20), self._count(1)
        return Piece("vortex.sequence", fields(f1=encode_scalar(first, dtype), f2=encode_scalar(step, dtype)))

    def _rle(self, dtype: DType, rows: int, depth: int) -> Piece:
        skipped = self._count(1023)
        blocks = -(-(skipped + rows) // CHUNK)
        lengths = self._rng.integers(1, 6, blocks)
        starts = np.cumsum([0, *lengths])[:-1] if blocks else np.empty(0, np.int64)
        held = int(lengths.sum())
        indices = np.concatenate(
            [np.empty(0, np.int64), *(self._rng.integers(0, each, CHUNK) for each in lengths)]
        )
        codes = self._numbers(indices, primitive("u2"), -1)._replace(
            children=self._valid(dtype, blocks * CHUNK, depth)
        )
        shift = self._count(5)
        metadata = fields(f1=held, f2=blocks * CHUNK, f3=1, f4=blocks, f5=3, f6=skipped)
        children = (
            self.array(dtype.as_nullable(False), held, 0),
            codes,
            self._numbers(starts + shift, primitive("u8"), -1),
        )
        return Piece("fastlanes.rle", metadata, (), children)

    def _delta(self, dtype: DType, rows: int, depth: int) -> Piece:
        skipped = self._count(1023)
        chunks = -(-(skipped + rows) // CHUNK)
        plain = dtype.as_nullable(False)
        children = (
            self.array(plain, chunks * CHUNK // (8 * dtype.numpy.itemsize), 0),
            self.array(plain, chunks * CHUNK, min(depth, 1)),
            *self._valid(dtype, rows, depth),
        )
        return Piece("fastlanes.delta", fields(f1=chunks * CHUNK, f2=skipped), (), children)

    def _alp(self, dtype: DType, rows: int, depth: int) -> Piece:
        size = dtype.numpy.itemsize
        e = self._count(10 if size == 4 else 18)
        patches: bytes | None = None
        children: tuple[Piece, ...] = ()
        if self._rng.random() < 0.5:
            patches, children = self._patches(dtype, rows, -1)
        inner = self.array(primitive(f"i{size}", dtype.nullable), rows, depth)
        return Piece("vortex.alp", fields(f1=e, f2=self._count(e), f3=patches), (), (inner, *children))

    def _alp_rd(self, dtype: DType, rows: int, depth: int) -> Piece:
        size = dtype.numpy.itemsize
        right = 8 * size - 1 - self._count(15)
        lefts = self._rng.integers(0, 1 << (8 * size - right), 1 + self._count(7)).tolist()
        packed = b"".join(_varint(each) for each in lefts)
        codes = self._numbers(self._rng.integers(0, len(lefts), rows), primitive("u2"), -1)
        codes = codes._replace(children=self._valid(dtype, rows, depth))
        rights = (self._values(primitive(f"u{size}"), rows) & ((1 << right) - 1)).astype(f"<u{size}")
        return Piece(
            "vortex.alprd",
            fields(f1=right, f2=len(lefts), f3=packed, f4=1),
            (),
            (codes, self._numbers(rights, primitive(f"u{size}"), depth)),
        )

    def _bytes_of_bool(self, dtype: DType, rows: int, depth: int) -> Piece:
        data = self._rng.integers(0, 2, rows, np.uint8)
        return Piece("vortex.bytebool", buffers=((data, 1),), children=self._valid(dtype, rows, depth))

    def _decimal_parts(self, dtype: DType, rows: int, depth: int) -> Piece:
        most = {4: 2, 9: 4}.get(dtype.precision, 8)
        kind = [each for each in INTEGERS[4:] if each.numpy.itemsize <= most][-1]
        values = self._rng.integers(-999, 999, rows)
        inner = self._numbers(values, kind, -1)._replace(children=self._valid(dtype, rows, depth))
        return Piece("vortex.decimal_byte_parts", fields(f1=kind.ptype), (), (inner,))

    def _decimal_parts_2(self, dtype: DType, rows: int, depth: int) -> Piece:
        if dtype.precision < 30:
            return self._decimal_parts(dtype, rows, depth)
        high = self._numbers(self._rng.integers(-1, 1, rows), primitive("i8"), -1)
        high = high._replace(children=self._valid(dtype, rows, depth))
        low = self._numbers(self._rng.integers(0, 1 << 63, rows), primitive("u8"), depth)
        return Piece("vortex.decimal_byte_parts.v2", fields(f1=7, f2=b"\3"), (), (high, low))

    def _texts(self, rows: int) -> tuple[list[bytes], Any]:
        texts = [self._text() for _ in range(rows)]
        return texts, np.cumsum([0, *map(len, texts)], dtype=np.int64)

    def _fsst(self, dtype: DType, rows: int, depth: int) -> Piece:
        texts, offsets = self._texts(rows)
        sample = [*texts[:50], b"bow", b"string"]
        bounds = np.cumsum([0, *map(len, sample)], dtype=np.int64)
        table = train_fsst(np.frombuffer(b"".join(sample), np.uint8), bounds)
        text = np.frombuffer(b"".join(texts), np.uint8)
        codes, places = encode_fsst(text, offsets, table)
        lengths = self._numbers(np.diff(offsets), self._unsigned(int(np.diff(offsets).max(initial=0))), -1)
        valid = self._valid(dtype, rows, depth)
        of_lengths = PTYPES.index(lengths.buffers[0][0].dtype)
        ends = self._numbers(places, primitive("u4"), depth)
        symbols = ((table.symbols, 8), (table.lengths, 1))
        if self._rng.random() < 0.5:
            held = Piece("vortex.varbin", fields(f1=2), ((codes, 1),), (ends, *valid))
            return Piece("vortex.fsst", fields(f1=of_lengths), symbols, (held, lengths))
        return Piece(
            "vortex.fsst", fields(f1=of_lengths, f2=2), (*symbols, (codes, 1)), (lengths, ends, *valid)
        )

    def _onpair(self, dtype: DType, rows: int, depth: int) -> Piece:
        tokens = (
            [bytes([each]) for each in range(256)]
            if dtype.kind is Kind.BINARY
            else [b"bow", b"string", b" ", b"\0", b"more than", b"sixteen bytes ab", "ä".encode()]
        )
        bounds = np.cumsum([0, *map(len, tokens)])
        sizes = np.array([len(each) for each in tokens])
        counts = self._rng.integers(0, 5, rows)
        ends = np.cumsum([0, *counts])
        codes = self._rng.integers(0, len(tokens), int(ends[-1]))
        summed = np.concatenate([[0], np.cumsum(sizes[codes])])
        lengths = summed[ends[1:]] - summed[ends[:-1]]
        metadata = fields(f1=2, f3=len(tokens), f4=len(codes), f5=2, f6=1, f7=2)
        children = (
            self._numbers(bounds, primitive("u4"), -1),
            self._numbers(codes, primitive("u2"), depth),
            self._numbers(ends, primitive("u4"), depth),
            self._numbers(lengths, primitive("u4"), depth),
            *self._valid(dtype, rows, depth),
        )
        return Piece("vortex.onpair", metadata, ((b"".join(tokens) + bytes(16), 8),), children)

    def _list_view(self, dtype: DType, rows: int, depth: int) -> Piece:
        held = 5 + self._count(20)
        starts = self._rng.integers(0, held - 4, rows)
        children = (
            self.array(dtype.children[0], held, depth),
            self._numbers(starts, primitive("u4"), depth),
            self._numbers(self._rng.integers(0, 4, rows), primitive("u1"), depth),
            *self._valid(dtype, rows, depth),
        )
        return Piece("vortex.listview", fields(f1=held, f2=2, f3=0), (), children)

    def _times(self, dtype: DType, rows: int, depth: int) -> Piece:
        days = self._numbers(self._rng.integers(-9999, 9999, rows), primitive("i4"), -1)
        days = days._replace(children=self._valid(dtype, rows, depth))
        seconds = self._numbers(self._rng.integers(0, 86_400, rows), primitive("u4"), depth)
        rest = self._numbers(self._rng.integers(0, 1, rows), primitive("u4"), depth)
        return Piece("vortex.datetimeparts", fields(f1=6, f2=2, f3=2), (), (days, seconds, rest))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
