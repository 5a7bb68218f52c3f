"""Recording: a message is decoded by the rules while what they compute and launch is noted, as a program.

A rule gets a :class:`Number` for each integer of a message, and an :class:`Array` for each of its arrays. Both hold
what the message has, so that the rule goes on as ever. What is computed of a number becomes code; what a rule asks
about one (a comparison, its use as a plain integer) becomes a check that a later message has to pass. A rule that
does something else with them raises :class:`Unrecorded`, and its column stays with the rules.
"""

from __future__ import annotations

import dataclasses
import operator
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from bowstring.errors import BowstringError
from bowstring.kernels import library
from bowstring.kernels.launch import launch, register_recorder
from bowstring.kernels.signature import signatures_of
from bowstring.kernels.vortex import gather, numbers
from bowstring.kernels.vortex import program as kernel
from bowstring.kernels.vortex.faults import check_faults
from bowstring.vortex.decode import Decoder
from bowstring.vortex.message import ArrayNode
from bowstring.vortex.protobuf import BYTES, Field, Message
from bowstring.vortex.values import Parts, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.kernels.signature import Signature
    from bowstring.limits import Limits
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.message import Body

_WORD: Final = 2**64 - 1
_MOST: Final = 1 << 62
_UNCHANGED: Final = {(0, int(kernel.ADD)), (0, int(kernel.SUBTRACT)), (1, int(kernel.MULTIPLY))}
_NOWHERE: Final = 64  # the address of arrays without elements


class Unrecorded(Exception):
    """What a rule does cannot be part of a program."""


def _operation(code: Any, compute: Callable[[int, int], int], *, turned: bool = False) -> Any:
    """Return a method that notes an operation on a number and another; turned, on the other and the number."""

    def noted(self: Number, other: Any) -> Any:
        left, right = (other, self) if turned else (self, other)
        if code is kernel.DIVIDE and right <= 0:
            raise Unrecorded
        return self.recorder.computed(code, left, right, compute)

    return noted


class Number:
    """An integer of a message: its value here, and the register that has it for others."""

    __slots__ = ("is_word", "recorder", "register", "stage", "value")

    def __init__(
        self, recorder: Recorder, value: int, register: int, stage: int, *, is_word: bool = False
    ) -> None:
        if not -_MOST < value < (1 << 64 if is_word else _MOST):
            raise Unrecorded
        self.recorder = recorder
        self.value = value
        self.register = register
        self.stage = stage
        self.is_word = is_word

    __add__ = __radd__ = _operation(kernel.ADD, operator.add)
    __sub__ = _operation(kernel.SUBTRACT, operator.sub)
    __rsub__ = _operation(kernel.SUBTRACT, operator.sub, turned=True)
    __mul__ = __rmul__ = _operation(kernel.MULTIPLY, operator.mul)
    __floordiv__ = _operation(kernel.DIVIDE, operator.floordiv)
    __rfloordiv__ = _operation(kernel.DIVIDE, operator.floordiv, turned=True)
    __rshift__ = _operation(kernel.SHIFT, operator.rshift)

    def __lshift__(self, other: int) -> Any:
        return self * (1 << other)

    def __and__(self, other: Any) -> Any:
        if isinstance(other, int) and other == _WORD:  # the bits of the register, as they are
            return Number(self.recorder, self.value & _WORD, self.register, self.stage, is_word=True)
        return self.recorder.computed(kernel.AND, self, other, operator.and_)

    __rand__ = __and__

    def __neg__(self) -> Any:
        return 0 - self

    def __eq__(self, other: object) -> bool:
        return self.recorder.asked(kernel.EQUAL, kernel.DIFFERENT, self, other, operator.eq)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self.recorder.asked(kernel.LESS, kernel.AT_LEAST, self, other, operator.lt)

    def __gt__(self, other: Any) -> bool:
        return self.recorder.asked(kernel.LESS, kernel.AT_LEAST, other, self, operator.lt)

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        if self.is_word or self != self.value:
            raise Unrecorded
        return self.value

    __int__ = __index__

    def __hash__(self) -> NoReturn:
        raise Unrecorded


class Blob(NamedTuple):
    """Bytes of a message: their address is in one register, and how many they are in the next."""

    recorder: Recorder
    data: bytes
    register: int

    def message(self, where: str) -> RecordedMessage:
        return RecordedMessage(self, where)


class RecordedMessage(Message):
    """Protocol buffers whose fields are looked up again in each message."""

    __slots__ = ("_blob",)

    def __init__(self, blob: Blob, where: str) -> None:
        super().__init__(blob.data, where)
        self._blob = blob

    def _last(self, number: int, wire: int) -> Any:
        value = super()._last(number, wire)
        return self._looked_up(kernel.FIELD, number, -1 if value is None else wire, value)

    def last(self) -> Field | None:
        field = super().last()
        if field is None or field.wire == BYTES:
            raise Unrecorded
        return field._replace(value=self._looked_up(kernel.LAST, field.number, field.wire, field.value))

    def messages(self, _number: int) -> NoReturn:
        raise Unrecorded

    def uints(self, number: int) -> list[Any]:
        packed, numbers = self.blob(number), super().uints(number)
        if packed is None or len(numbers) > 0xFF:
            raise Unrecorded
        recorder, register = self._blob.recorder, packed.register  # type: ignore[attr-defined]
        return [
            recorder.noted(kernel.ELEMENT, register, 0, each, at << 8 | len(numbers))
            for at, each in enumerate(numbers)
        ]

    def _looked_up(self, operation: Any, number: int, wire: int, found: Any) -> Any:
        recorder = self._blob.recorder
        value = found if isinstance(found, int) else 0
        noted = recorder.noted(operation, self._blob.register, 0, value, number << 8 | wire + 1)
        if isinstance(found, bytes):
            return Blob(recorder, found, noted.register)
        return None if found is None else noted


@dataclasses.dataclass(slots=True)
class Memory:
    """What arrays lie in: the row of code that places it, and the stage in which it is complete."""

    row: list[int] | None = None
    stage: int = 0
    is_kept: bool = False


class Array:
    """An array: what it is here, and its address and its size for other messages."""

    __slots__ = ("address", "dtype", "memory", "recorder", "size", "values")

    def __init__(self, recorder: Recorder, memory: Memory, values: Any, address: Any, size: Any) -> None:
        self.recorder = recorder
        self.memory = memory
        self.values = values
        self.address = address
        self.size = size
        self.dtype = values.dtype

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    def view(self, dtype: Any) -> Array:
        values, size = self.values.view(dtype), self.size
        old, new = self.dtype.itemsize, values.dtype.itemsize
        if new < old:
            size = size * (old // new)
        elif new > old:
            size = size // (new // old)
            if size * (new // old) != self.size:
                raise Unrecorded
        return Array(self.recorder, self.memory, values, self.address, size)

    def astype(self, dtype: Any) -> Array:
        dtype = np.dtype(dtype)
        if dtype.itemsize == self.dtype.itemsize:  # integers all
            return self.view(dtype)
        out = self.recorder.empty(self.size, dtype)
        launch(numbers.convert, self.size, self, out.view(f"i{dtype.itemsize}"))
        return out

    def __getitem__(self, where: Any) -> Array:
        if not isinstance(where, slice) or where.step is not None:
            raise Unrecorded
        start = 0 if where.start is None else where.start
        stop = self.size if where.stop is None else where.stop
        if not 0 <= start <= stop <= self.size:
            raise Unrecorded
        first, last = (each.value if isinstance(each, Number) else each for each in (start, stop))
        address = self.address + start * self.dtype.itemsize
        return Array(self.recorder, self.memory, self.values[first:last], address, stop - start)

    def _refuse(self, *_: object) -> NoReturn:
        raise Unrecorded

    __len__ = __iter__ = __array__ = __bool__ = __eq__ = __ne__ = __lt__ = __ge__ = __and__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class Step(NamedTuple):
    """A launch: address of the loop, items, and the first register of its block."""

    stage: int
    loop: int
    items: Any
    block: int


class Recorder(Decoder):
    """Decodes one column of a message by the rules, and notes how."""

    def __init__(self, body: Body, node: ArrayNode, limits: Limits, rows: int) -> None:
        super().__init__(body, limits, rows)
        self.code: list[list[int]] = []
        self.steps: list[Step] = []
        self.loads: list[tuple[int, int, int]] = []
        self.memories: list[Memory] = []
        self.registers = [0] * int(kernel.WORDS)
        self._noted: dict[tuple[int, ...], Number] = {}
        self._constants: dict[int, int] = {}
        self.node = self._node(node)
        self.words = len(self.registers)
        self.rows: Any = Number(self, rows, int(kernel.ROWS), 0)
        self.room: Any = Number(self, self.room, int(kernel.ROOM), 0)
        self._plain_faults = self.faults
        faults = Number(self, library.address_of(self.faults), int(kernel.FAULTS), 0)
        self.faults = Array(self, Memory(), self.faults, faults, self.faults.size)
        self.device: Any = None  # rules that use it cannot be recorded, nor those that work on whole arrays
        self.xp: Any = None
        self.arrays = SimpleNamespace(empty=self.empty, asarray=self.put)

    def try_column(self, dtype: DType, type_: pa.DataType) -> Parts | None:
        """Return the recorded column; None where it cannot be recorded, or something is wrong."""
        try:
            parts = parts_of(self.decode(self.node, dtype, self.rows), type_, self.device)
            check_faults(self._plain_faults)
        except (Unrecorded, BowstringError, TypeError, AttributeError):
            return None
        return parts

    def _node(self, node: ArrayNode) -> ArrayNode:
        register = self._new(2 + 2 * len(node.buffers))
        own = tuple((index, register + 2 + 2 * at) for at, index in enumerate(node.buffers))
        children = tuple(map(self._node, node.children))
        metadata: Any = Blob(self, node.metadata, register)
        return ArrayNode(node.encoding, metadata, own, children)  # type: ignore[arg-type]

    # Registers and code

    def _new(self, count: int = 1) -> int:
        self.registers += [0] * count
        return len(self.registers) - count

    def register_of(self, number: Any) -> int:
        """Return the register of a number, or of a plain integer."""
        if isinstance(number, Number):
            return number.register
        register = self._constants.get(number)
        if register is None:
            register = self._constants[number] = self._new()
            self.registers[register] = number
        return register

    def noted(
        self, operation: Any, left: int, right: int, value: int, extra: int = 0, stage: int = 0
    ) -> Number:
        key = int(operation), left, right, extra
        noted = self._noted.get(key)
        if noted is None:
            noted = self._noted[key] = Number(self, value, self._new(2), stage)
            self.code.append([stage, key[0], noted.register, left, right, extra])
        return noted

    def computed(self, operation: Any, left: Any, right: Any, compute: Callable[[int, int], int]) -> Any:
        """Note an operation on two numbers of which one is of the message; return its result."""
        if not isinstance(right, Number) and (right, int(operation)) in _UNCHANGED:
            return left
        stage, (first, second) = _stage_of((left, right)), _values_of((left, right))
        registers = self.register_of(left), self.register_of(right)
        return self.noted(operation, *registers, compute(first, second), stage=stage)

    def asked(
        self, holds: Any, fails: Any, left: Any, right: Any, compare: Callable[[int, int], bool]
    ) -> bool:
        """Note the outcome of a comparison; return it."""
        words = [each.is_word for each in (left, right) if isinstance(each, Number)]
        if any(words) and right != 0:
            raise Unrecorded
        outcome = compare(*(each.value if isinstance(each, Number) else each for each in (left, right)))
        plain = [each for each in (left, right) if not isinstance(each, Number)]
        if not any(not isinstance(each, int) or abs(each) > _WORD >> 1 for each in plain):
            registers = self.register_of(left), self.register_of(right)
            self.noted(holds if outcome else fails, *registers, 0, stage=_stage_of((left, right)))
        elif any(not isinstance(each, int) for each in plain):
            raise Unrecorded
        return outcome

    # Arrays

    def empty(self, size: Any, dtype: Any) -> Array:
        dtype = np.dtype(dtype)
        (count,) = _values_of((size,))
        values = np.empty(count, dtype)
        if isinstance(size, int) and not size:
            return Array(self, Memory(), values, _NOWHERE, 0)
        stage, register = _stage_of((size,)), self._new()
        row = [stage, int(kernel.ALLOCATE), register, self.register_of(size * dtype.itemsize), 0, 0]
        self.code.append(row)
        address = Number(self, library.address_of(values), register, stage)
        return Array(self, self._memory(row), values, address, size)

    def _memory(self, row: list[int]) -> Memory:
        self.memories.append(Memory(row, row[0]))
        return self.memories[-1]

    def put(self, numbers_: Sequence[Any], dtype: Any) -> Array:
        if np.dtype(dtype) != np.uint64:
            raise Unrecorded
        out = self.empty(len(numbers_), dtype)
        for at, each in enumerate(numbers_):
            launch(numbers.count_up, 1, each & _WORD, 0, 0, out[at : at + 1].view(np.int64))
        return out

    def launched(self, function: Any, items: Any, *arguments: Any) -> None:
        """Run a kernel on what is here, and note it."""
        launch(function, *_values_of((items, *arguments)))
        if items > 0:
            self._note_step(function, items, *arguments)

    def _note_step(self, function: Any, items: Any, *arguments: Any) -> None:
        signature = _signature_of(function, arguments)
        loaded = library.load()
        assert isinstance(loaded, library.Library)  # else nothing is recorded
        memories = [
            each.memory for each in arguments if isinstance(each, Array) and each.memory.row is not None
        ]
        stage = max([_stage_of((items, *arguments)), *(each.stage for each in memories)])
        for each in memories:
            each.stage = stage
        words: list[Any] = []
        for parameter, argument in zip(signature.parameters, arguments, strict=True):
            if parameter.array:
                words += [argument.address, argument.size]
            else:
                words.append(_word(parameter.scalar, argument))
        loop, block = loaded.address(signature), self._new(len(words))
        if not loop:
            raise Unrecorded
        for at, word in enumerate(words, block):
            if isinstance(word, Number):
                self.code.append([stage, int(kernel.COPY), at, word.register, 0, 0])
            else:
                self.registers[at] = word
        self.steps.append(Step(stage, loop, items, block))

    # What rules ask for

    def metadata(self, node: ArrayNode) -> Message:
        return RecordedMessage(node.metadata, node.encoding)  # type: ignore[arg-type]

    def last(self, integers: Array) -> Any:
        at = integers.size - 1
        place, value = integers[at:], int(integers.values[-1])
        stage, register = max(integers.memory.stage, _stage_of((place.address,))) + 1, self._new()
        self.loads.append((stage, register, place.address.register))
        return Number(self, value, register, stage)

    def stored_bytes(self, node: ArrayNode, at: int) -> Any:
        index, register = self._stored(node, at)
        stored = self.body.stored[index]
        return Blob(self, bytes(self._whole[stored.offset : stored.offset + stored.nbytes]), register)

    def buffer(self, node: ArrayNode, at: int, dtype: Any = np.uint8, count: Any = None) -> Any:
        dtype = np.dtype(dtype)
        index, register = self._stored(node, at)
        stored = self.body.stored[index]
        address = Number(self, self._address + stored.offset, register, 0)
        nbytes: Any = Number(self, stored.nbytes, register + 1, 0)
        if count is None:
            count = nbytes // dtype.itemsize
            if count * dtype.itemsize != nbytes:
                raise Unrecorded
        elif nbytes < count * dtype.itemsize:
            raise Unrecorded
        nbytes = count * dtype.itemsize
        (size,) = _values_of((nbytes,))
        values = self._whole[stored.offset : stored.offset + size]
        if dtype.itemsize == 1:
            return Array(self, Memory(), values.view(dtype), address, count)
        self.allocate(nbytes)
        values = values.copy()
        # A copy for messages in which it is not aligned: `moved` has the bytes to copy, or 0.
        stage, to = _stage_of((nbytes,)), self._new(2)
        row = [stage, int(kernel.ALIGN), to, register, self.register_of(nbytes), dtype.itemsize << 8]
        self.code.append(row)
        memory, moved = self._memory(row), Number(self, 0, to + 1, stage)
        placed = Number(self, library.address_of(values), to, stage)
        nothing = np.empty(0, np.uint8)
        copied = Array(self, Memory(), nothing, address, moved), Array(self, memory, nothing, placed, moved)
        self._note_step(gather.copy_bytes, -(-moved // 4096), *copied)
        return Array(self, memory, values.view(dtype), placed, count)

    def _stored(self, node: ArrayNode, at: int) -> tuple[int, int]:
        if not 0 <= at < len(node.buffers):
            raise Unrecorded
        index: int
        register: int
        index, register = node.buffers[at]  # type: ignore[misc]
        if index >= len(self.body.stored) or self.body.stored[index].compression:
            raise Unrecorded
        return index, register


def _stage_of(numbers_: Sequence[Any]) -> int:
    stages = [each.stage for each in numbers_ if isinstance(each, Number)]
    stages += [
        part.stage
        for each in numbers_
        if isinstance(each, Array)
        for part in (each.address, each.size)
        if isinstance(part, Number)
    ]
    return max(stages, default=0)


def _values_of(arguments: Sequence[Any]) -> list[Any]:
    return [
        each.values if isinstance(each, Array) else each.value if isinstance(each, Number) else each
        for each in arguments
    ]


def _signature_of(function: Any, arguments: Sequence[Any]) -> Signature:
    for signature in signatures_of(function):
        if len(signature.parameters) == len(arguments) and all(
            parameter.array == isinstance(each, Array)
            and (not parameter.array or each.dtype == parameter.dtype)
            for parameter, each in zip(signature.parameters, arguments, strict=True)
        ):
            return signature
    raise Unrecorded


def _word(scalar: str, value: Any) -> Any:
    """Return the word that a block has for a scalar."""
    if isinstance(value, Number):
        if scalar[0] == "f" or (scalar[0] == "u" and not value.is_word and value < 0):
            raise Unrecorded
        return value
    if scalar[0] == "f":
        return int(struct.unpack("<q", struct.pack("<d" if scalar == "f64" else "<f4x", value))[0])
    word = int(value) & _WORD
    return word - (1 << 64) if word >> 63 else word


def _recorder_of(arguments: Sequence[Any]) -> Recorder:
    return next(each.recorder for each in arguments if isinstance(each, Array))


register_recorder(
    Array,
    lambda function, items, *arguments: _recorder_of(arguments).launched(function, items, *arguments),
    lambda body, *arguments: body(_recorder_of(arguments).arrays, *arguments),
)
