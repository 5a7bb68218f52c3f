"""Programs: how columns of one shape are decoded, without a rule for each of their nodes.

The second column of a shape (its tree of encodings, and its type) is decoded by a recorder
(:mod:`bowstring.vortex.recording`), which leaves a program: code over registers, and launches. For a message, one
kernel writes its tree as words; another computes the registers of all its columns, and checks that the rules would
do the same; the launches of a column are one call. A stage ends where the host needs a number that was decoded.
What fails a check, or has no program, is decoded by the rules, which also name what is wrong.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.kernels import host, library
from bowstring.kernels.threads import run_ranges, thread_count
from bowstring.kernels.vortex import program as kernel
from bowstring.kernels.vortex.arrays import empty
from bowstring.limits import most_decompressed
from bowstring.memory import foreign_region
from bowstring.vortex.decode import Decoder
from bowstring.vortex.recording import Recorder
from bowstring.vortex.rules import encodings
from bowstring.vortex.values import Parts, parts_of, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.message import Body, Message
    from bowstring.vortex.values import Values

_MANY_ROWS: Final = 1 << 17
"""From here on launches one by one take less, because each is shared by all threads."""
_MOST_PROGRAMS: Final = 4
"""Of one shape; columns that none of them fits are decoded by the rules."""
_MOST_SHAPES: Final = 1 << 10
_MOST_CODE: Final = 1 << 12
"""Rows of the code of one program."""
_MOST_ROWS: Final = 1 << 17
"""Rows of the code of all programs that are kept: 6 MiB, and as much for their registers."""
_MOST_SCRATCH, _MOST_SCRATCHES = 16 << 20, 4
_ROWS, _ROOM, _FAULTS = int(kernel.ROWS), int(kernel.ROOM), int(kernel.FAULTS)
_OWN, _MEMORY, _WORDS = int(kernel.OWN), int(kernel.MEMORY), int(kernel.WORDS)
_CODE_ROW: Final = int(kernel.CODE_ROW)
_FAULT_WORDS: Final = 8
_NO_BYTES: Final = np.empty(0, np.uint8)
_ENCODING: Final = (1 << int(kernel.CHILDREN)) - 1


class _Stage(NamedTuple):
    steps: int  # the register of the first launch
    length: int
    loads: tuple[tuple[int, int], ...]  # of numbers that were decoded: the register, and that of the address


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Program:
    """How columns of one shape are decoded."""

    code: Any
    registers: Any
    words: int  # registers before the end of the words of its nodes
    stages: tuple[_Stage, ...]
    left: int  # the register with the bytes that are left of those that may be allocated
    nodes: list[tuple[int, int]]  # of the result, the register of the length, and the null count
    buffers: list[tuple[int, int, int]]  # the registers of address and size, and the bytes of an element
    counts: list[int]


@dataclasses.dataclass(eq=False, slots=True)
class _Shape:
    """Columns of one tree of encodings and one type."""

    dtype: DType  # alive, so that nothing else has its identity
    recorded: int = 0
    programs: list[Program] = dataclasses.field(default_factory=list)


class _Kept:
    """Shapes by the words of their nodes and the identity of their type; all are dropped when they become many."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[bytes, int], _Shape] = {}
        self.rows = 0  # of the code of all programs

    def add(self, key: tuple[bytes, int], dtype: DType) -> None:
        if len(self.shapes) >= _MOST_SHAPES or self.rows > _MOST_ROWS:
            self.shapes, self.rows = {}, 0
        self.shapes[key] = _Shape(dtype)


_kept: Final = _Kept()
_scratch: Final[list[Any]] = []


class Source(NamedTuple):
    """A message that is decoded."""

    message: Message
    buffer: Buffer
    dtype: DType
    is_struct: bool  # whether its columns are fields; else it is the only one itself
    schema: pa.Schema
    limits: Limits
    parse: Callable[[], Body]
    column: Callable[[Decoder, int], Values]  # decodes a column by the rules


class _Tree(NamedTuple):
    """The tree of a body: shapes of the nodes, words, and where those of each column begin, and the end."""

    shapes: bytes
    words: Any
    begins: list[list[int]]


def decode_columns(source: Source, columns: Sequence[int]) -> tuple[list[Parts], list[Region]]:
    """Return columns of a message, and the memory of their spans: by programs, or by the rules."""
    decoded: dict[int, Parts] = {}
    regions: list[Region] = []
    device, room = source.buffer.device, most_decompressed(source.buffer.nbytes, source.limits)
    shapes: dict[int, _Shape] = {}
    is_small = source.message.row_count <= _MANY_ROWS or thread_count() == 1
    tree = _read(source) if device.is_host and is_small else None
    if tree is not None:
        for each in columns:
            dtype = source.dtype.children[each] if source.is_struct else source.dtype
            key = tree.shapes[8 * tree.begins[each][0] : 8 * tree.begins[each + 1][0]], id(dtype)
            if key in _kept.shapes:
                shapes[each] = _kept.shapes[key]
            else:
                _kept.add(key, dtype)
        for number in range(_MOST_PROGRAMS):
            programs: dict[int, Program] = {}
            for each, shape in shapes.items():
                if each not in decoded and number < len(shape.programs):
                    programs[each] = shape.programs[number]
            if not programs:
                break
            room = _run(source, tree, programs, room, decoded, regions)
        for each, shape in shapes.items():
            if each not in decoded and shape.recorded < _MOST_PROGRAMS:
                shape.recorded += 1
                body = source.parse()
                node = body.root.children[each] if source.is_struct else body.root
                recorder = Recorder(body, node, source.limits, source.message.row_count)
                parts = recorder.try_column(shape.dtype, source.schema.field(each).type)
                if parts is not None and len(recorder.code) <= _MOST_CODE:
                    shape.programs.append(_finished(recorder, parts))
                    _kept.rows += len(recorder.code)
    decoder = None
    for each in columns:
        if each not in decoded:
            decoder = decoder or Decoder(source.parse(), source.limits, source.message.row_count, room)
            values = source.column(decoder, each)
            decoded[each] = placed(parts_of(values, source.schema.field(each).type, device), regions, device)
    return [decoded[each] for each in columns], regions


def _read(source: Source) -> _Tree | None:
    """Return the tree of a body; None where the rules have to read it."""
    read, names, limits = host.bound(kernel.read_nodes), source.message.encodings, source.limits
    body, nbytes = source.buffer.array(), source.buffer.nbytes
    if read is None or nbytes < 4:
        return None
    # Nodes, words and buffers have four bytes each, at least, where none is named twice.
    most = min(int.from_bytes(body[-4:].tobytes(), "little"), nbytes, limits.metadata_bytes) // 4
    stack, heads = 3 * (limits.depth - 1), int(kernel.HEADS)
    table = np.empty(4 * most + stack + heads, np.int64)
    at, words = library.address_of(table), [source.buffer.address, nbytes, source.buffer.address]
    words.append(limits.metadata_bytes)
    for size in (most, stack, most, most, most, heads):
        words += (at, size)
        at += 8 * size
    read(*words)
    is_right, nodes, count, children = table[-heads:].tolist()
    numbers = _numbers(names)
    if not is_right or nodes > limits.columns:
        return None
    first = most + stack
    shapes = table[first : first + nodes]
    which = shapes & _ENCODING
    root = int(which[0])
    if int(which.max()) >= len(names):
        return None
    begins = [[0, 0], [nodes, count]]
    if source.is_struct:
        if names[root] != "vortex.struct" or children != len(source.dtype.children):
            return None
        starts = table[first + 2 * most : first + 2 * most + 2 * children]
        begins = [*starts.reshape(-1, 2).tolist(), [nodes, count]]
    return _Tree((shapes - which | numbers[which]).tobytes(), table[first + most : first + 2 * most], begins)


@functools.lru_cache(256)
def _numbers(names: tuple[str, ...]) -> Any:
    """Return a number for each encoding, the same in all messages; one for all that are not known."""
    known = encodings()
    return np.array([known.index(each) if each in known else len(known) for each in names], np.int64)


def _finished(recorder: Recorder, parts: Parts) -> Program:
    register = recorder.register_of
    for array in parts.buffers:
        if array is not None:
            array.memory.is_kept = True
    buffers = [
        (register(0), register(0), 1)
        if array is None
        else (register(array.address), register(array.size), array.dtype.itemsize)
        for array in parts.buffers
    ]
    nodes, left = [(register(length), nulls) for length, nulls in parts.nodes], register(recorder.room)
    for memory in recorder.memories:
        assert memory.row is not None
        memory.row[5] |= int(memory.is_kept)  # in which memory of the stage it lies
    stages = []
    for stage in range(1 + max((row[0] for row in recorder.code), default=0)):
        steps, first = [each for each in recorder.steps if each.stage == stage], len(recorder.registers)
        recorder.registers += [0] * (3 * len(steps))
        for to, step in zip(range(first, len(recorder.registers), 3), steps, strict=True):
            recorder.registers[to] = step.loop
            block = register(8 * step.block)
            recorder.code.append([stage, int(kernel.COPY), to + 1, register(step.items), 0, 0])
            recorder.code.append([stage, int(kernel.ADD), to + 2, _OWN, block, 0])
        loads = tuple(each[1:] for each in recorder.loads if each[0] == stage)
        stages.append(_Stage(first, len(steps), loads))
    code, registers = np.array(recorder.code, np.int64).reshape(-1), np.array(recorder.registers, np.int64)
    return Program(code, registers, recorder.words, tuple(stages), left, nodes, buffers, parts.counts)


class _Linked:
    """Programs of some columns as one: their code and registers lie behind each other."""

    def __init__(self, programs: tuple[Program, ...]) -> None:
        sizes = np.array([(len(each.code) // _CODE_ROW, len(each.registers)) for each in programs], np.int64)
        begins = np.cumsum(sizes, axis=0) - sizes
        self.code = np.concatenate([each.code for each in programs])
        self.registers = np.concatenate([each.registers for each in programs])
        self.links = np.column_stack((begins[:, 0], sizes[:, 0], begins[:, 1]))
        self.own = own = begins[:, 1]
        self.firsts = own.tolist()
        # Words are read one behind the other, and written behind what every program has.
        self.words = np.array([each.words - _WORDS for each in programs], np.int64)
        self.before = np.cumsum(self.words) - self.words
        self.to = np.arange(self.words.sum()) + np.repeat(own + _WORDS - self.before, self.words)
        self.left = own + np.array([each.left for each in programs])
        self.stages = []
        for number in range(max(len(each.stages) for each in programs)):
            stages = [each.stages[number] if number < len(each.stages) else _NO_STAGE for each in programs]
            steps = np.array([each[:2] for each in stages], np.int64)
            loads = [
                (at, first + to, first + place)
                for at, (first, each) in enumerate(zip(self.firsts, stages, strict=True))
                for to, place in each.loads
            ]
            self.stages.append((8 * (steps[:, 0] + own), steps[:, 1], loads))
        buffers = np.array([each for program in programs for each in program.buffers], np.int64).reshape(
            -1, 3
        )
        of = np.repeat(own, [len(each.buffers) for each in programs])
        self.addresses, self.sizes, self.widths = buffers[:, 0] + of, buffers[:, 1] + of, buffers[:, 2]
        self.lengths = [
            first + each[0]
            for first, program in zip(self.firsts, programs, strict=True)
            for each in program.nodes
        ]


_NO_STAGE: Final = _Stage(0, 0, ())
_linked: Final = functools.lru_cache(16)(_Linked)


def _run(
    source: Source,
    tree: _Tree,
    chosen: dict[int, Program],
    room: int,
    found: dict[int, Parts],
    regions: list[Region],
) -> int:
    """Decode columns by programs, as far as those fit; return how many bytes may still be allocated."""
    loaded, evaluate = library.load(), host.bound(kernel.evaluate, one=False)
    assert isinstance(loaded, library.Library)
    assert evaluate is not None
    columns, programs = list(chosen), tuple(chosen.values())
    address_of, count, linked = library.address_of, len(programs), _linked(programs)
    registers, own = linked.registers.copy(), linked.own
    faults = np.zeros((count, _FAULT_WORDS), np.int64)
    base = address_of(registers)
    registers[own + _ROWS] = source.message.row_count
    registers[own + _ROOM] = room
    registers[own + _FAULTS] = np.arange(count) * faults.strides[0] + address_of(faults)
    registers[own + _OWN] = 8 * own + base
    begins = np.array([tree.begins[each][1] for each in columns])
    registers[linked.to] = tree.words[
        np.arange(len(linked.to)) + np.repeat(begins - linked.before, linked.words)
    ]
    body = source.buffer.address, source.buffer.nbytes, source.buffer.address
    tops = np.zeros((count, 3), np.int64)
    tables = address_of(linked.links), linked.links.size, address_of(linked.code), linked.code.size
    rest = address_of(tops), tops.size, base, registers.size
    memories, scratches, going = [source.buffer.array()], list[Any](), np.ones(count, np.bool_)
    try:
        for number, (steps, counts, loads) in enumerate(linked.stages):
            for at, to, place in loads:
                if going[at]:
                    registers[to] = library.READ_WORD(int(registers[place])).value
            # Once to know how much memory the stage needs, and again to know where everything lies in it.
            evaluate(count, *body, *tables, number, *rest)
            going &= tops[:, 0] == 1
            tops[~going] = 0
            bytes_ = tops[:, 1:].copy()
            needed, kept = bytes_.sum(axis=0).tolist()
            if needed + kept > room:
                return room
            if needed + kept:
                try:
                    scratches.append(_scratch.pop())
                except IndexError:  # one look: another thread may take the last
                    scratches.append(_NO_BYTES)
                if scratches[-1].size < needed:
                    scratches[-1] = np.empty(needed, np.uint8)
                memories.append(empty(_NO_BYTES, kept, np.uint8))
                before = np.cumsum(bytes_, axis=0) - bytes_
                registers[own + _MEMORY] = before[:, 0] + address_of(scratches[-1])
                registers[own + _MEMORY + 1] = before[:, 1] + address_of(memories[-1])
                evaluate(count, *body, *tables, number, *rest)
                # A producer may have changed the bytes in between: what would lie elsewhere is not decoded.
                going &= (tops[:, 0] == 1) & (tops[:, 1:] == bytes_).all(axis=1)
            lists = np.column_stack((steps + base, counts * going))
            run_ranges(functools.partial(_run_lists, loaded, address_of(lists)), count, kept)
    finally:
        for each in scratches:
            if each.size <= _MOST_SCRATCH and len(_scratch) < _MOST_SCRATCHES:
                _scratch.append(each)
    going &= ~faults.any(axis=1)
    used = int((room - registers[linked.left])[going].sum())
    if used > room:
        return room
    _place(programs, columns, linked, registers, memories, going.tolist(), found, regions)
    return room - used


def _run_lists(loaded: library.Library, lists: int, start: int, stop: int) -> None:
    loaded.run_steps(lists + 16 * start, stop - start)


def _place(
    programs: tuple[Program, ...],
    columns: list[int],
    linked: _Linked,
    registers: Any,
    memories: list[Any],
    going: list[bool],
    found: dict[int, Parts],
    regions: list[Region],
) -> None:
    """Add the columns that are right, and the memories that they lie in."""
    addresses = registers[linked.addresses]
    spans = np.column_stack((np.zeros_like(addresses), addresses, registers[linked.sizes] * linked.widths))
    for memory in memories:
        begin = library.address_of(memory)
        inside = (addresses >= begin) & (addresses - begin < memory.size) & (spans[:, 2] > 0)
        spans[inside, 0] = len(regions)
        spans[inside, 1] -= begin
        regions.append(foreign_region(begin, memory.size, memory))
    rows, lengths, at, node = spans.tolist(), registers[linked.lengths].tolist(), 0, 0
    for column, program, is_right in zip(columns, programs, going, strict=True):
        if is_right:
            nodes = [
                (length, nulls) for length, (_, nulls) in zip(lengths[node:], program.nodes, strict=False)
            ]
            found[column] = Parts(nodes, rows[at : at + len(program.buffers)], program.counts)
        at += len(program.buffers)
        node += len(program.nodes)
