"""Sparse tensors as objects: from and to scipy and pyarrow, on devices, and what is wrong with them."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.errors import (
    EndOfStream,
    InvalidBody,
    LimitExceeded,
    MissingDependency,
    NotOnDevice,
    Unsupported,
    UsageError,
)
from bowstring.memory import cpu
from bowstring.testing import OnlyCurrent, fake_device

scipy_sparse = pytest.importorskip("scipy.sparse")

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
FORMS = ["coo", "csr", "csc"]


@st.composite
def scipy_arrays(draw: st.DrawFn) -> Any:
    """Draw an array or matrix of scipy's, unsorted and with one place named twice at times."""
    shape = (draw(st.integers(0, 5)), draw(st.integers(0, 5)))
    count = draw(st.integers(0, 8)) if all(shape) else 0
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coords = tuple(rng.integers(0, max(size, 1), count) for size in shape)
    data = rng.integers(0, 100, count).astype(draw(st.sampled_from(DTYPES)))
    kind = draw(st.sampled_from([scipy_sparse.coo_array, scipy_sparse.coo_matrix]))
    made = kind((data, coords), shape=shape)
    form = draw(st.sampled_from(FORMS))
    made = made if form == "coo" else made.asformat(form)
    index = draw(st.sampled_from([np.int32, np.int64]))
    if form != "coo":
        made.indices, made.indptr = made.indices.astype(index), made.indptr.astype(index)
    return made


def written(tensor: Any) -> bytes:
    sink = io.BytesIO()
    ipc.write_sparse_tensor(tensor, sink)
    return sink.getvalue()


def is_canonical(tensor: ipc.SparseTensor) -> bool:
    assert tensor.format == "coo"
    index: Any = tensor.index
    return bool(index.is_canonical)


def tensor_of(form: str) -> ipc.SparseTensor:
    """Return the same matrix in any form."""
    array = np.array([[0, 1.5, 0], [2.5, 0, 3.5]])
    if form == "csf":
        return ipc.SparseTensor.from_arrow(pa.SparseCSFTensor.from_dense_numpy(array))
    return ipc.SparseTensor.from_scipy(scipy_sparse.coo_array(array).asformat(form))


@given(scipy_arrays())
def test_scipy_comes_back_equal(matrix: Any) -> None:
    """What scipy holds is written and read as an equal array of the same form and index type."""
    tensor = ipc.read_sparse_tensor(written(matrix))
    found = tensor.to_scipy()
    assert (found.format, found.shape, found.dtype) == (matrix.format, matrix.shape, matrix.dtype)
    assert np.array_equal(found.toarray(), matrix.toarray())
    assert np.array_equal(tensor.to_tensor().to_numpy(), matrix.toarray())
    if matrix.format == "coo":
        assert is_canonical(tensor) == is_canonical(ipc.SparseTensor.from_scipy(matrix))
    else:
        assert found.indices.dtype == matrix.indices.dtype
        assert found.has_sorted_indices


@given(scipy_arrays())
def test_scipy_is_given_the_memory_of_the_message(matrix: Any) -> None:
    """Values and indices of scipy's array are views of the message."""
    message = written(matrix)
    found = ipc.read_sparse_tensor(message).to_scipy()
    room = np.frombuffer(message, np.uint8)
    arrays = [found.data, *(found.coords if found.format == "coo" else (found.indptr, found.indices))]
    assert all(np.shares_memory(array, room) for array in arrays if array.size)
    assert not found.data.flags.writeable or not found.data.size


@pytest.mark.parametrize("form", FORMS)
def test_the_memory_of_scipy_is_taken(form: str) -> None:
    """A tensor made of scipy's array holds scipy's own arrays."""
    matrix = scipy_sparse.random_array((20, 30), density=0.2, format=form, rng=np.random.default_rng(0))
    tensor = ipc.SparseTensor.from_scipy(matrix)
    theirs = [matrix.data, *(matrix.coords if form == "coo" else (matrix.indptr, matrix.indices))]
    index: Any = tensor.index
    ours = index.indices if form == "coo" else index.parts
    for mine, other in zip([tensor.data, *ours], theirs, strict=True):
        assert np.shares_memory(mine, other)


def test_arrays_of_other_dimensions_are_written_by_coordinates() -> None:
    """Arrays of one dimension and of three keep their shape."""
    line = scipy_sparse.csr_array(np.array([0, 1, 0, 2]))
    assert ipc.read_sparse_tensor(written(line)).to_scipy().toarray().tolist() == [0, 1, 0, 2]
    cube = np.arange(24).reshape(2, 3, 4) % 5 // 4
    found = ipc.read_sparse_tensor(written(scipy_sparse.coo_array(cube)))
    assert (found.format, is_canonical(found)) == ("coo", True)
    assert np.array_equal(found.to_scipy().toarray(), cube)


def test_unsorted_rows_are_sorted_in_a_copy() -> None:
    """Arrow's rows are sorted; what scipy holds is left as it is."""
    matrix = scipy_sparse.csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    tensor = ipc.read_sparse_tensor(written(matrix))
    assert [part.tolist() for part in (*tensor.index.parts, tensor.data)] == [[0, 2], [0, 2], [2.0, 1.0]]
    assert matrix.indices.tolist() == [2, 0]


def test_room_to_spare_is_not_written() -> None:
    """What scipy keeps behind the last value stays behind."""
    matrix = scipy_sparse.csr_array((2, 3))
    matrix.data, matrix.indices = np.arange(9.0), np.arange(9)
    matrix.indptr = np.array([0, 1, 2])
    assert ipc.read_sparse_tensor(written(matrix)).to_scipy().toarray().tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("source", [scipy_sparse.eye_array(3, format="dia"), np.eye(3), object()])
def test_what_is_not_sparse_is_refused(source: Any) -> None:
    """Other forms of scipy's, dense arrays and anything else are refused, and told what to do."""
    with pytest.raises(UsageError, match="tocsr"):
        ipc.write_sparse_tensor(source, io.BytesIO())
    with pytest.raises(UsageError):
        ipc.write_sparse_tensor(pa.Tensor.from_numpy(np.eye(2)), io.BytesIO())


def test_half_floats_and_no_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What scipy cannot hold is refused by name, and so is a missing scipy."""
    tensor = ipc.SparseTensor.from_csr(np.array([1], "f2"), [0, 1], [0], (1, 1))
    with pytest.raises(Unsupported, match="half"):
        tensor.to_scipy()
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(MissingDependency, match="pip install scipy"):
        tensor.to_scipy()


@pytest.mark.parametrize("form", [*FORMS, "csf"])
def test_arrow_is_given_equal_tensors(form: str) -> None:
    """A tensor becomes pyarrow's of the same form, and comes back from it."""
    tensor = tensor_of(form)
    arrow = tensor.to_arrow()
    assert np.array_equal(arrow.to_tensor().to_numpy(), tensor.to_tensor().to_numpy())
    assert written(ipc.SparseTensor.from_arrow(arrow)) == written(arrow)
    for mine, theirs in zip(tensor.to_numpy(), arrow.to_numpy(), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert np.array_equal(one, other)


@given(st.permutations(range(3)))
def test_the_order_of_axes_of_arrow_is_found(order: list[int]) -> None:
    """A tensor of fibers that pyarrow holds is written in the order of axes that it does not tell."""
    coords = np.array([[0, 1, 2], [1, 0, 1]])[:, np.argsort(order)]
    levels = [np.array([0, 1]), np.array([1, 0]), np.array([2, 1])]
    shape = np.array([2, 2, 3])[np.argsort(order)]
    data = np.array([5.0, 6.0])
    one_each = np.array([0, 1, 2])
    arrow = pa.SparseCSFTensor.from_numpy(data, [one_each, one_each], levels, tuple(shape), axis_order=order)
    expected = np.zeros(shape)
    expected[tuple(coords.T)] = data
    assert np.array_equal(ipc.read_sparse_tensor(written(arrow)).to_tensor().to_numpy(), expected)


def test_an_order_of_axes_that_cannot_be_found_is_asked_for() -> None:
    """NaN equals nothing, so the order has to be given; it is refused, not guessed."""
    array = np.array([[np.nan, 0], [0, 1]])
    arrow = pa.SparseCSFTensor.from_dense_numpy(array)
    with pytest.raises(Unsupported, match="axis_order"):
        ipc.SparseTensor.from_arrow(arrow)
    found = ipc.SparseTensor.from_arrow(arrow, axis_order=[0, 1]).to_tensor().to_numpy()
    assert np.array_equal(found, array, equal_nan=True)


@pytest.mark.parametrize("form", [*FORMS, "csf"])
def test_coordinates_of_any_form(form: str) -> None:
    """Every form has the same values at the same coordinates, over the same values."""
    tensor = tensor_of(form)
    found = tensor.to_coo()
    assert np.shares_memory(found.data, tensor.data)
    assert np.array_equal(found.to_tensor().to_numpy(), [[0, 1.5, 0], [2.5, 0, 3.5]])
    assert is_canonical(found) == (form != "csc")


@pytest.mark.parametrize("form", [*FORMS, "csf"])
def test_devices_are_written_and_read_by_one_copy(form: str) -> None:
    """A sparse tensor leaves a device by one copy, comes onto one by one copy, and is checked there."""
    device = fake_device()
    tensor = tensor_of(form)
    there = tensor.to_device(device)
    device.stats.reset()
    message = written(there)
    assert device.stats.host_reads == 1
    expected = tensor.to_tensor().to_numpy()
    assert np.array_equal(ipc.read_sparse_tensor(message).to_tensor().to_numpy(), expected)
    device.stats.reset()
    found = ipc.read_sparse_tensor(message, device=device)
    assert (device.stats.host_writes, device.stats.host_reads) == (1, 0)
    found.validate(full=True)
    assert device.stats.host_read_bytes < 100
    assert found.device is device
    assert written(found) == message
    for ask in (found.to_scipy, found.to_arrow, found.to_numpy, found.to_tensor):
        with pytest.raises(NotOnDevice, match="to_device"):
            ask()
    assert np.array_equal(found.to_device(cpu()).to_tensor().to_numpy(), expected)


class Cupyx:
    """A matrix of cupyx, as far as it is looked at: arrays of a device, sorted on the one that is current."""

    def __init__(
        self, form: str, shape: tuple[int, ...], arrays: dict[str, Any], *, is_sorted: bool = True
    ) -> None:
        self.format, self.shape, self.has_sorted_indices = form, shape, is_sorted
        self.__dict__ |= arrays

    def sorted_indices(self) -> Cupyx:
        arrays = {"data": self.data + 0, "indptr": self.indptr + 0, "indices": self.indices + 0}  # type: ignore[attr-defined]
        return Cupyx(self.format, self.shape, arrays)


def cupyx_like(matrix: Any, device: Any, *, is_sorted: bool) -> Cupyx:
    """Return a matrix of scipy's on a device."""
    names = ("data", "row", "col") if matrix.format == "coo" else ("data", "indptr", "indices")
    arrays = {name: device.from_host(getattr(matrix, name)) for name in names}
    return Cupyx(matrix.format, matrix.shape, arrays, is_sorted=is_sorted)


@pytest.mark.parametrize("index", ["i4", "u8"])
@pytest.mark.parametrize("form", [*FORMS, "csf"])
def test_work_on_a_device_is_done_while_it_is_the_current_one(form: str, index: str) -> None:
    """What is computed of a device's arrays, a matrix of cupyx included, is computed inside ``device.use()``."""
    device, tensor = fake_device(1), tensor_of(form)
    expected = tensor.to_tensor().to_numpy()
    with OnlyCurrent():
        there = [tensor.to_device(device), ipc.read_sparse_tensor(written(tensor), device=device)]
        if form != "csf":
            matrix = tensor.to_scipy()
            there += [
                ipc.SparseTensor.from_scipy(cupyx_like(matrix, device, is_sorted=is_sorted))
                for is_sorted in (True, False)
            ]
        if form == "coo":
            coords = np.stack(np.nonzero(expected), axis=1).astype(index)
            data = device.from_host(expected[expected != 0])
            there.append(
                ipc.SparseTensor.from_coo(data, device.from_host(coords), expected.shape, is_canonical=True)
            )
            columns = tuple(
                device.from_host(coords[:, axis].astype(each)) for axis, each in enumerate((index, "i2"))
            )
            there.append(ipc.SparseTensor.from_coo(data, columns, expected.shape))
        for each in there:
            each.validate(full=True)
            assert each.device is device
            found = ipc.read_sparse_tensor(written(each)).to_tensor().to_numpy()
            assert np.array_equal(found, expected)


def test_coordinates_on_a_device_are_not_looked_at() -> None:
    """Making a tensor of a device's arrays copies nothing to the host."""
    device = fake_device()
    data, coords = device.from_host(np.ones(2)), device.from_host(np.array([[0, 1], [1, 0]]))
    device.stats.reset()
    tensor = ipc.SparseTensor.from_coo(data, coords, (2, 2))
    assert device.stats.host_reads == 0
    assert not is_canonical(tensor)
    claimed = ipc.SparseTensor.from_coo(data, coords[::-1], (2, 2), is_canonical=True)
    with pytest.raises(InvalidBody, match="sorted"):
        claimed.validate(full=True)


WRONG = {
    "coordinate": ("coo", ([1, 2], [[0, 5], [1, 0]]), "indices of dimension 1"),
    "negative coordinate": ("coo", ([1, 2], [[-1, 0], [1, 0]]), "indices of dimension 0"),
    "index": ("csr", ([1, 2], [0, 1, 2], [0, 3]), "indices"),
    "negative index": ("csc", ([1, 2], [0, 1, 1, 2], [0, -1]), "indices"),
    "decreasing": ("csc", ([1, 2], [0, 2, 1, 2], [0, 1]), "indptr"),
    "first": ("csr", ([1, 2], [1, 1, 2], [0, 1]), "indptr"),
    "last": ("csr", ([1, 2], [0, 1, 3], [0, 1]), "indptr"),
    "fiber": ("csf", ([1, 2], [[0, 1, 2]], [[0, 1], [0, 9]]), "indices of dimension 1"),
    "fiber's range": ("csf", ([1, 2], [[0, 3, 2]], [[0, 1], [0, 1]]), "indptr of level 0"),
}


@pytest.mark.parametrize("where", ["cpu", "fake"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_indices_are_found_before_they_are_used(name: str, where: str) -> None:
    """A full check names the place, and nothing is given to scipy or pyarrow before it has passed."""
    form, arguments, place = WRONG[name]
    tensor: ipc.SparseTensor = getattr(ipc.SparseTensor, f"from_{form}")(*arguments, (2, 3))
    tensor.validate()
    if where == "fake":
        tensor = ipc.read_sparse_tensor(written(tensor), device=fake_device())
        uses: list[Any] = [lambda: tensor.validate(full=True)]
    else:
        tensor = ipc.read_sparse_tensor(written(tensor))
        uses = [lambda: tensor.validate(full=True), tensor.to_scipy, tensor.to_arrow, tensor.to_tensor]
    for use in uses:
        with pytest.raises(InvalidBody, match=place):
            use()


def test_coordinates_that_only_claim_to_be_sorted_are_found() -> None:
    """A message may say that its coordinates are sorted and unique, and lie."""
    for coords in ([[1, 0], [0, 1]], [[0, 1], [0, 1]]):
        tensor = ipc.SparseTensor.from_coo([1, 2], coords, (2, 2), is_canonical=True)
        with pytest.raises(InvalidBody, match="sorted"):
            ipc.read_sparse_tensor(written(tensor)).validate(full=True)


MISFITS: dict[str, tuple[str, tuple[Any, ...], tuple[int, ...]]] = {
    "too few coordinates": ("coo", ([1, 2], [[0, 1]]), (2, 2)),
    "too many dimensions": ("coo", ([1], [[0, 1, 1]]), (2, 2)),
    "uneven coordinates": ("coo", ([1], (np.array([0]), np.array([0, 1]))), (2, 2)),
    "short indptr": ("csr", ([1], [0, 1], [0]), (2, 2)),
    "short indices": ("csc", ([1, 2], [0, 1, 2], [0]), (2, 2)),
    "no matrix": ("csr", ([1], [0, 1], [0]), (1, 2, 3)),
    "axes": ("csf", ([1], [[0, 1]], [[0], [0]], (2, 2), [0, 0]), ()),
    "levels": ("csf", ([1], [], [[0], [0]]), (2, 2)),
    "one level": ("csf", ([1], [], [[0]]), (2,)),
    "missing level": ("csf", ([1, 2], [[0, 1, 2]], [[0, 1]]), (2, 3)),
    "level too many": ("csf", ([1, 2], [[0, 1, 2]], [[0, 1], [0, 1], [0, 1]]), (2, 3)),
    "leaves": ("csf", ([1, 2], [[0, 1]], [[0], [0]]), (2, 2)),
    "no dimensions": ("coo", ([], np.empty((0, 0), int)), ()),
    "negative extent": ("csr", ([], [0], []), (-1, 2)),
    "float indices": ("csr", ([1], [0.0, 1.0], [0]), (1, 2)),
    "matrix of indices": ("csr", ([1], [[0, 1]], [0]), (1, 2)),
    "names": ("csr", ([1], [0, 1], [0], (1, 2), ["row"]), ()),
    "complex values": ("csr", ([1j], [0, 1], [0]), (1, 2)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arrays_that_do_not_belong_together_are_refused(name: str) -> None:
    """Numbers of values, indices, levels, dimensions and names that contradict each other make no tensor."""
    form, arguments, shape = MISFITS[name]
    with pytest.raises((InvalidBody, UsageError)):
        getattr(ipc.SparseTensor, f"from_{form}")(
            *arguments, *([shape] if shape or len(arguments) < 4 else [])
        )


def test_tensors_larger_than_memory_stay_sparse() -> None:
    """Extents have no bound but int64; only the zeros of such a tensor are refused."""
    shape = (2**62, 2**62)
    tensor = ipc.SparseTensor.from_coo([1.5], [[2**61, 5]], shape)
    found = ipc.read_sparse_tensor(written(tensor))
    found.validate(full=True)
    assert (found.shape, found.to_numpy()[1].tolist()) == (shape, [[2**61, 5]])
    with pytest.raises(LimitExceeded, match="zeros"):
        found.to_tensor()


def test_values_of_one_place_are_added_up() -> None:
    """What is there twice counts twice, as scipy has it."""
    tensor = ipc.SparseTensor.from_coo([1, 2, 4], [[0, 0], [0, 0], [1, 1]], (2, 2))
    assert tensor.to_tensor().to_numpy().tolist() == [[3, 0], [0, 4]]
    assert tensor.to_scipy().toarray().tolist() == [[3, 0], [0, 4]]


def test_lists_of_other_types_become_what_is_written() -> None:
    """Booleans become bytes, the other byte order is turned round, mixed indices become int64."""
    tensor = ipc.SparseTensor.from_csr([True], np.array([0, 1], ">i4"), np.array([0], ">u2"), (1, 1))
    assert tensor.format == "csr"
    index: Any = tensor.index
    assert [tensor.dtype, *(part.dtype for part in index.parts)] == ["u1", "<i4", "<u2"]
    coords = (np.array([0], "i1"), np.array([1], "u8"))
    assert ipc.SparseTensor.from_coo([1], coords, (1, 2)).to_scipy().toarray().tolist() == [[0, 1]]


def test_files_are_read_message_by_message(tmp_path: Path, no_leaks: None) -> None:
    """Sparse and dense messages stand one behind the other in a file; a path is mapped."""
    path = tmp_path / "tensors"
    with path.open("wb") as file:
        ipc.write_tensor(np.arange(3), file)
        for form in [*FORMS, "csf"]:
            ipc.write_sparse_tensor(tensor_of(form), file)
    expected = tensor_of("csr").to_tensor().to_numpy()
    with path.open("rb") as file:
        assert ipc.read_tensor(file).to_numpy().tolist() == [0, 1, 2]
        for form in [*FORMS, "csf"]:
            found = ipc.read_sparse_tensor(file)
            assert found.format == form
            assert np.array_equal(found.to_tensor().to_numpy(), expected)
        with pytest.raises(EndOfStream):
            ipc.read_sparse_tensor(file)
    ipc.write_sparse_tensor(tensor_of("csr"), path)
    assert np.array_equal(ipc.read_sparse_tensor(path).to_tensor().to_numpy(), expected)


@pytest.mark.parametrize("shift", [1, 4, 8])
def test_misaligned_sources_are_put_right_only_where_needed(shift: int) -> None:
    """Arrays at an address that their type cannot be read at are copied, the others are views."""
    message = np.frombuffer(
        written(ipc.SparseTensor.from_csr([1.0], np.array([0, 1], "i4"), [0], (1, 1))), np.uint8
    )
    room = np.empty(len(message) + 128, np.uint8)
    start = -room.ctypes.data % 64 + shift
    room[start : start + len(message)] = message
    found = ipc.read_sparse_tensor(room[start : start + len(message)])
    for array in (found.data, *found.index.parts):
        assert array.flags.aligned
        assert np.shares_memory(array, room) == (shift % array.itemsize == 0)
    assert found.to_scipy().toarray().tolist() == [[1.0]]
