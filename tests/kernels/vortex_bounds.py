"""Wild arguments for the kernels of Vortex: any number in every array, and arrays of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.types import f32, f64, i64, u64
from bowstring.kernels.vortex import gather, numbers, pack, program, strings, unpack
from tests.kernels.vortex_cases import code_of, some_bodies

Rng = np.random.Generator
Make = Callable[[Rng], tuple[Any, ...]]


def arguments(wild: Callable[..., Any], guarded: Callable[..., Any]) -> dict[Callable[..., None], Make]:
    def some(rng: Rng, dtype: Any, most: int = 60) -> Any:
        return wild(rng, dtype, int(rng.integers(0, most)))

    def zeros(size: int, dtype: Any) -> Any:
        return guarded(np.zeros(size, dtype))

    def faults() -> Any:
        return zeros(8, np.int64)

    def number(rng: Rng, most: int) -> Any:
        return i64(rng.choice([-(2**40), -1, *rng.integers(0, most, 6), most, most + 1, 2**40]))

    def word(rng: Rng) -> Any:
        return rng.choice(np.array([0, 3, 2**63, 2**64 - 1], np.uint64))

    def words(rng: Rng) -> tuple[Any, ...]:
        log = int(rng.integers(3, 7))
        starts = some(rng, np.int64, 4)
        if rng.random() < 0.5:
            starts = guarded(np.sort(rng.integers(0, 8, 3)) * 16)
        held = wild(rng, np.uint64, int(rng.integers(0, 200)))
        arguments = held, starts, some(rng, np.uint64, 3), number(rng, 1 << log), i64(log), u64(1), i64(0)
        return (
            *arguments,
            i64(rng.choice([0, 4])),
            zeros(int(rng.integers(0, 40 << log)), np.uint64),
            faults(),
        )

    def floats(bits: int, type_: Any) -> Make:
        def made(rng: Rng) -> tuple[Any, ...]:
            held = wild(rng, np.uint64, int(rng.integers(0, 20 * bits)))
            arguments = held, some(rng, np.uint64, 3), number(rng, bits), i64(1), type_(1), type_(1)
            return *arguments, i64(rng.choice([0, 4])), zeros(int(rng.integers(0, 2100)), type_), faults()

        return made

    def damaged(rng: Rng) -> Any:
        """The body of an array of which some bytes are others."""
        bodies = list(some_bodies())
        body = bodies[int(rng.integers(0, len(bodies)))].copy()
        at = rng.integers(max(len(body) - 150, 0), len(body), int(rng.integers(0, 4)))
        body[at] = rng.integers(0, 256, len(at))
        return body

    def rows(rng: Rng, dtype: Any) -> Any:
        """What a kernel reads at its work item: at least the two that there are."""
        return wild(rng, dtype, int(rng.integers(2, 60)))

    def prefixed(rng: Rng) -> bytes:
        """A value with its length before it, which may be another than it has."""
        size = int(rng.integers(0, 16))
        return int(rng.choice([size, size, size, size + 1, 2**31, 2**32 - 1])).to_bytes(
            4, "little"
        ) + rng.bytes(size)

    def tables(rng: Rng) -> tuple[Any, ...]:
        sizes = (256, 65536, *[pack.SLOTS] * 3)
        kinds = (np.uint16, np.uint16, np.uint64, np.uint64, np.uint16)
        short = rng.integers(0, 20)
        return tuple(
            wild(rng, kind, 9 if at == short else size)
            for at, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
        )

    return {
        pack.pack_words: lambda rng: (
            *(wild(rng, np.uint64, int(rng.choice([0, 127, 128, 256]))), number(rng, 8), i64(3), u64(1)),
            *(i64(1), word(rng), zeros(int(rng.integers(0, 140)), np.uint64)),
        ),
        pack.train_symbols: lambda rng: (
            *(wild(rng, np.uint8, 9), some(rng, np.int64), zeros(int(rng.choice([17, 18])), np.uint64)),
            *(wild(rng, np.int64, 18), wild(rng, np.int64, int(rng.choice([32, 63, 64])))),
            *(wild(rng, np.int64, 255), zeros(255, np.uint64), zeros(255, np.uint8)),
            *(*tables(rng), zeros(1, np.int64)),
        ),
        pack.write_fsst: lambda rng: (
            *(some(rng, np.uint8), wild(rng, np.int64, 3), *tables(rng), zeros(2, np.int64)),
            zeros(int(rng.integers(0, 60)), np.uint8),
        ),
        pack.join_rows: lambda rng: (
            *(some(rng, np.uint8), wild(rng, np.int64, 3), wild(rng, np.int64, 3)),
            zeros(int(rng.integers(0, 60)), np.uint8),
        ),
        unpack.unpack_words: words,
        unpack.unpack_doubles: floats(64, f64),
        unpack.unpack_singles: floats(32, f32),
        gather.scatter: lambda rng: (
            *(rows(rng, np.uint64), word(rng), some(rng, np.uint16), zeros(9, np.uint16), faults()),
        ),
        gather.scatter_words: lambda rng: (
            *(rows(rng, np.uint64), word(rng), some(rng, np.uint64), i64(2), zeros(9, np.uint64), faults()),
        ),
        gather.gather: lambda rng: (
            *(rows(rng, np.uint16), some(rng, np.uint32), some(rng, np.uint8), i64(5)),
            *(zeros(2, np.uint32), faults()),
        ),
        gather.gather_words: lambda rng: (
            *(rows(rng, np.uint16), some(rng, np.uint64), i64(2), some(rng, np.uint8), i64(5)),
            *(zeros(4, np.uint64), faults()),
        ),
        gather.gather_bits: lambda rng: (
            *(some(rng, np.uint16, 140), some(rng, np.uint8), i64(5), word(rng), zeros(2, np.uint32)),
        ),
        gather.expand_runs: lambda rng: (
            *(some(rng, np.uint64), some(rng, np.uint32), word(rng), number(rng, 40), i64(16)),
            *(zeros(int(rng.integers(0, 40)), np.uint32), faults()),
        ),
        gather.expand_blocks: lambda rng: (
            *(some(rng, np.uint16), some(rng, np.uint32), some(rng, np.int64, 4)),
            *(
                i64(rng.choice([0, 5, 1000, 1023])),
                some(rng, np.uint8),
                i64(5),
                zeros(2, np.uint32),
                faults(),
            ),
        ),
        numbers.adjust: lambda rng: (
            *(rows(rng, np.int16), u64(48), i64(1), some(rng, np.uint64, 3), zeros(2, np.int16)),
        ),
        numbers.scale_doubles: lambda rng: (rows(rng, np.int64), f64(10), f64(0.1), zeros(2, np.float64)),
        numbers.scale_singles: lambda rng: (rows(rng, np.int32), f32(10), f32(0.1), zeros(2, np.float32)),
        numbers.join_doubles: lambda rng: (
            *(rows(rng, np.uint16), rows(rng, np.uint64), some(rng, np.uint64, 9), u64(48)),
            *(some(rng, np.uint8), zeros(2, np.uint64), faults()),
        ),
        numbers.join_singles: lambda rng: (
            *(rows(rng, np.uint16), rows(rng, np.uint32), some(rng, np.uint64, 9), u64(16)),
            *(some(rng, np.uint8), zeros(2, np.uint32), faults()),
        ),
        numbers.patch_doubles: lambda rng: (
            *(rows(rng, np.uint64), word(rng), some(rng, np.uint64), u64(48), zeros(9, np.uint64), faults()),
        ),
        numbers.patch_singles: lambda rng: (
            *(rows(rng, np.uint64), word(rng), some(rng, np.uint64), u64(16), zeros(9, np.uint32), faults()),
        ),
        numbers.count_up: lambda rng: (word(rng), word(rng), u64(56), zeros(2, np.int8)),
        numbers.add_deltas: lambda rng: (
            *(some(rng, np.int64, 3), wild(rng, np.int64, int(rng.choice([0, 1023, 1024])))),
            *(i64(6), u64(0), zeros(int(rng.choice([0, 1023, 1024])), np.int64), faults()),
        ),
        numbers.add_part: lambda rng: (rows(rng, np.uint32), i64(-7), zeros(2, np.int64)),
        numbers.convert: lambda rng: (rows(rng, np.uint16), zeros(2, np.int32)),
        gather.note_order: lambda rng: (wild(rng, np.uint32, 3), faults()),
        gather.copy_bytes: lambda rng: (
            some(rng, np.uint8, 9000),
            zeros(int(rng.integers(0, 9000)), np.uint8),
        ),
        strings.add_lengths: lambda rng: (some(rng, np.uint16), zeros(int(rng.integers(2, 60)), np.int64)),
        strings.fill_symbol: lambda rng: (
            *(some(rng, np.uint8), some(rng, np.uint8)),
            *(zeros(2, np.uint64), zeros(2, np.uint8)),
        ),
        program.read_nodes: lambda rng: (
            *(guarded(damaged(rng)), i64(4096), i64(rng.choice([0, 500, 2**40]))),
            *(zeros(int(rng.integers(0, most)), np.int64) for most in (9, 9, 9, 30, 9)),
            zeros(8, np.int64),
        ),
        # Code and links are ours; what is computed from bytes of a peer is not.
        program.evaluate: lambda rng: (
            *(some(rng, np.uint8), i64(4096), guarded(np.array([0, 1, 0, 0, 1, 0]))),
            guarded(code_of((0, int(rng.integers(0, 16)), 8, 9, 11, int(rng.integers(0, 2**20)) & ~254))),
            *(i64(0), zeros(6, np.int64)),
            guarded(np.append(np.zeros(9, np.int64), rng.choice([0, 4096, 4100, 2**62, -1, 9], 6))),
        ),
        numbers.widen: lambda rng: (rows(rng, np.int32), i64(2), zeros(4, np.uint64)),
        strings.decode_fsst: lambda rng: (
            *(some(rng, np.uint8), wild(rng, np.int64, 3), wild(rng, np.uint64, int(rng.choice([255, 256])))),
            guarded(rng.integers(0, 9, 256, dtype=np.uint8)),
            *(wild(rng, np.int64, 3), i64(rng.integers(1, 4)), zeros(int(rng.integers(0, 60)), np.uint8)),
            faults(),
        ),
        strings.decode_onpair: lambda rng: (
            *(some(rng, np.uint16), wild(rng, np.int64, 3), some(rng, np.uint8), some(rng, np.int64, 9)),
            *(wild(rng, np.int64, 3), i64(rng.integers(1, 4)), zeros(int(rng.integers(0, 60)), np.uint8)),
            faults(),
        ),
        strings.make_views: lambda rng: (
            *(wild(rng, np.int32, 3), some(rng, np.uint8), u64(1), some(rng, np.uint8), i64(5)),
            *(zeros(4, np.uint64), faults()),
        ),
        strings.make_views_of_prefixed: lambda rng: (
            guarded(np.frombuffer(b"".join(prefixed(rng) for _ in range(3)), np.uint8)),
            *(some(rng, np.uint8), i64(4), zeros(8, np.uint64), faults()),
        ),
    }
