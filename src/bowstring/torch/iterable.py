"""``bowstring.torch.IterableDataset``."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed
import torch.utils.data

from bowstring.client import connect
from bowstring.client.names import depot_dataset, is_depot
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import UsageError
from bowstring.torch.reading import Reading


class IterableDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch need not be installed
    """A data set for ``torch.utils.data.DataLoader``: each rank and each of its workers reads its share.

    Each item is a batch: a dict by the names of the columns, of tensors and of what `decode` makes. Give the loader
    ``batch_size=None``, which hands items on as they are. On the host, tensors are views of the memory that the
    producer wrote where a batch lies within one of the producer's and nothing is shuffled; they may be written, and
    nobody else sees that.

    Booleans, integers and floating-point numbers keep their types. Dates, times and timestamps are integers of
    their unit. Lists that are equally long (Spark's ``array<float>``) are tensors of two dimensions.

    Parameters
    ----------
    dataset
        What :func:`bowstring.spark.publish` or :meth:`bowstring.Server.publish` returned, or what
        :func:`bowstring.connect` opens: an address with one data set, an endpoint's URI, ``"depot:NAME"``. A name
        is looked up once, by this call.
    columns
        Names of the columns.
    shard
        ``(i, n)``: the i-th of n shares, which its workers divide among themselves. By default the rank and the
        world size of ``torch.distributed``, or of ``RANK`` and ``WORLD_SIZE`` as ``torchrun`` sets them.
    batch_size
        Rows of each batch; by default batches are as the producer made them.
    shuffle_buffer
        Rows that wait in a buffer from which chance takes the next ones; 0 keeps the order. The parts of the share
        are read in another order in each epoch, too. Only for memory of the host.
    seed
        What decides about the order, together with the epoch.
    epochs
        How many times one iteration reads the share, each time in another order if it is shuffled.
    drop_last
        Whether a last batch of fewer rows is left out.
    even
        Whether all ranks get equally many batches, as ``DistributedDataParallel`` needs: rows at the end, fewer
        than there are readers, are left out. ``False``: each row comes exactly once in each epoch, over all ranks
        and workers. It needs `batch_size`.
    decode
        For columns of any other type, such as binary and text: functions by the names of the columns, in the order
        in which they are called. Each gets a list of the values of one batch (bytes, text, whatever
        ``to_pylist()`` gives; ``None`` for a null), and what it returns is the batch's value. It is called in the
        process that reads, when rows are shuffled and batches have their size; processes that are spawned need
        functions that pickle. Only for memory of the host.
    decimals
        What decimals become: ``"float64"``, or ``"unscaled"`` for integers of the last digit (64 bits). An error by
        default.
    device
        Where the tensors shall be, such as ``"cuda:0"``. Tensors of a GPU need ``num_workers=0``: a forked process
        cannot use CUDA.

    Raises
    ------
    UsageError
        An argument is wrong, or a column unknown.
    Unsupported
        A column makes no tensor and is not in `decode`: text, structs, or decimals without `decimals`.

    Notes
    -----
    Nulls, and lists that differ in length, raise where the batch is read.

    Examples
    --------
    >>> import bowstring as bow, pyarrow as pa
    >>> from torch.utils.data import DataLoader
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"x": [1.0, 2.0, 3.0], "y": [0, 1, 0]}))
    ...     dataset = bow.torch.IterableDataset(endpoint, columns=["x", "y"], batch_size=2)
    ...     batches = [batch["x"].tolist() for batch in DataLoader(dataset, batch_size=None)]
    >>> batches
    [[1.0, 2.0], [3.0]]

    Images and text, by functions of a batch's values:

    >>> import torch
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"image": [b"ab", b"cd"], "text": ["one", "two"]}))
    ...     decode = {"image": lambda images: torch.tensor([list(each) for each in images]), "text": list}
    ...     [batch] = bow.torch.IterableDataset(endpoint, columns=["image", "text"], decode=decode)
    >>> batch
    {'image': tensor([[ 97,  98],
            [ 99, 100]]), 'text': ['one', 'two']}
    """

    def __init__(
        self,
        dataset: Dataset | Endpoint | str,
        *,
        columns: Sequence[str],
        shard: tuple[int, int] | None = None,
        batch_size: int | None = None,
        shuffle_buffer: int = 0,
        seed: int = 0,
        epochs: int = 1,
        drop_last: bool = False,
        even: bool = False,
        decode: Mapping[str, Callable[[list[Any]], Any]] | None = None,
        decimals: Literal["float64", "unscaled"] | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(columns, str) or not columns:
            raise UsageError("columns is a list of names", found=repr(columns)[:80])
        self._shard = None if shard is None else _pair(shard)
        self._epochs = _number("epochs", epochs, 1)
        self._epoch = 0
        if batch_size is not None:
            batch_size = _number("batch_size", batch_size, 1)
        elif even:
            raise UsageError("even=True makes equally many batches of one size", expected="batch_size=…")
        if decimals not in (None, "float64", "unscaled"):
            raise UsageError(
                "no such way to take decimals", expected="'float64' or 'unscaled'", found=repr(decimals)
            )
        shuffle_buffer = _number("shuffle_buffer", shuffle_buffer, 0)
        where = None if device is None else str(device)
        self._decode = dict(decode or {})
        for name, function in self._decode.items():
            if name not in columns or not callable(function):
                raise UsageError("decode has a function for each of some columns", found=repr(name)[:80])
        if shuffle_buffer or self._decode:
            if where not in (None, "cpu"):
                what = "shuffle_buffer" if shuffle_buffer else "decode"
                raise UsageError(
                    "rows are shuffled and decoded on the host", found=f"{what} and device={where!r}"
                )
            where = "cpu"
        source = _found(dataset)
        self._reading = Reading(
            source,
            tuple(columns),
            batch_size,
            shuffle_buffer,
            _number("seed", seed, 0),
            drop_last,
            even,
            decimals,
            where,
            frozenset(self._decode),
        )
        known = source.schema.names
        if not known:
            return  # those of an endpoint are known when it is opened
        for name in self._reading.columns:
            if known.count(name) != 1:
                raise UsageError(
                    "the data set has no such column", expected=", ".join(known), found=repr(name)
                )
        self._reading.check_types(source.schema)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration begins with: rows are shuffled in another order in each.

        A loader with ``persistent_workers=True`` hands it to its workers once, before the first iteration.
        """
        self._epoch = _number("epoch", epoch, 0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and self._reading.device not in (None, "cpu"):
            raise UsageError(
                "tensors of a GPU are made in the process that uses them",
                expected="DataLoader(num_workers=0)",
                found=f"a worker, and device={self._reading.device!r}",
            )
        rank, ranks = self._shard or _of_rank()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for epoch in range(self._epoch, self._epoch + self._epochs):
            for arrays in self._reading.batches(rank * workers + number, ranks * workers, epoch):
                decoded = {name: each(list(arrays[name])) for name, each in self._decode.items()}
                yield {
                    name: decoded[name] if name in decoded else _tensor(array)
                    for name, array in arrays.items()
                }


def _tensor(array: Any) -> torch.Tensor:
    # NumPy's arrays can be written here: the stream has private pages, and what is gathered or shuffled is a copy.
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)


def _of_rank() -> tuple[int, int]:
    """Return the rank of this process, and of how many."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return _pair((os.environ["RANK"], os.environ["WORLD_SIZE"]))
    except KeyError:
        return 0, 1


def _found(source: Any) -> Dataset:
    """Return the data set that a user means, of one version."""
    if isinstance(source, str) and is_depot(source):
        return depot_dataset(source)
    if isinstance(source, str):
        with connect(source) as stream:
            source, schema = stream.endpoint, stream.schema
            return source if isinstance(source, Dataset) else Dataset((source,), schema)
    if isinstance(source, Endpoint):
        import pyarrow as pa

        return Dataset((source,), pa.schema([]))
    if not isinstance(source, Dataset):
        raise UsageError(
            "this is not a source", expected="a Dataset, an Endpoint or a URI", found=type(source).__name__
        )
    len(source)  # one whose job still runs says that it has none yet
    return source


def _pair(shard: Any) -> tuple[int, int]:
    try:
        index, count = (int(each) for each in shard)
    except (TypeError, ValueError):
        index, count = 0, 0
    if not 0 <= index < count:
        raise UsageError(
            "a shard is a pair of a number and how many there are",
            expected="(0, 4) to (3, 4)",
            found=repr(shard)[:80],
        )
    return index, count


def _number(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise UsageError(f"{name} is a whole number, {least} or more", found=repr(value)[:80])
    return number
