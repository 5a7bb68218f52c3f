"""``bowstring.torch.IterableDataset`` with PyTorch itself: loaders with workers, and ranks of ``torchrun``."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'bowstring[torch]'")
from torch.utils.data import DataLoader  # noqa: E402  which is PyTorch's, too

ROWS = 2003
_SECONDS = 240.0


def table() -> pa.Table:
    """Return rows in which y is a linear function of x."""
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 2))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 2).cast(pa.list_(pa.float64()))
    return pa.table({"n": np.arange(ROWS), "x": lists, "y": x @ [2.0, -1.0] + 0.5})


@pytest.fixture(scope="module")
def published() -> Iterator[bow.Endpoint]:
    """Return the rows as one endpoint, in batches of 300."""
    with bow.Server() as server:
        yield server.publish("t", pa.Table.from_batches(table().to_batches(max_chunksize=300)))


def numbers(loader: Any) -> list[int]:
    """Return the numbers of all rows."""
    return [int(n) for batch in loader for n in batch["n"]]


def test_tensors_are_views(published: bow.Endpoint) -> None:
    """Batches are tensors of the columns' types, in the memory of the producer, and can be written privately."""
    dataset = bow.torch.IterableDataset(published, columns=["x", "y", "n"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = list(dataset)
    assert [batch["n"].shape[0] for batch in batches] == [300] * 6 + [203]
    first = batches[0]
    assert (first["x"].dtype, first["x"].shape, first["n"].dtype) == (torch.float64, (300, 2), torch.int64)
    assert torch.allclose(first["x"] @ torch.tensor([2.0, -1.0], dtype=torch.float64) + 0.5, first["y"])
    first["n"][:] = -1
    assert numbers(bow.torch.IterableDataset(published, columns=["n"]))[:3] == [0, 1, 2]
    halves = list(bow.torch.IterableDataset(published, columns=["n"], batch_size=150))
    assert halves[0]["n"].untyped_storage().data_ptr() + 1200 == halves[1]["n"].data_ptr()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [0, 500])
def test_a_loader(published: bow.Endpoint, workers: int, shuffle: int) -> None:
    """Each row comes once in each epoch from a loader with workers or without; epochs have other orders."""
    dataset = bow.torch.IterableDataset(
        published, columns=["n"], batch_size=100, shuffle_buffer=shuffle, epochs=2
    )
    found = numbers(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert sorted(found) == sorted([*range(ROWS), *range(ROWS)])
    if not workers:
        assert (found[:ROWS] == found[ROWS:]) is not bool(shuffle)
        assert sorted(found[:ROWS]) == list(range(ROWS))


def values(*columns: str) -> list[tuple[Any, ...]]:
    """Return rows of an image, a text with nulls, and a number."""
    rows = [(bytes([n % 251, n // 251]), None if n % 7 == 0 else f"text {n}", n) for n in range(ROWS)]
    return [
        tuple(dict(zip(("image", "text", "n"), row, strict=True))[name] for name in columns) for row in rows
    ]


def pixels(images: list[bytes]) -> Any:
    """Decode some images; it pickles."""
    return torch.tensor([list(image) for image in images], dtype=torch.uint8)


@pytest.fixture(
    scope="module", params=[pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)], ids=str
)
def images(request: pytest.FixtureRequest) -> Iterator[bow.Endpoint]:
    """Return images, texts and numbers as one endpoint, in batches of 300."""
    image, text, n = zip(*values("image", "text", "n"), strict=True)
    made = pa.table({"image": pa.array(image, request.param), "text": pa.array(text), "n": pa.array(n)})
    with bow.Server() as server:
        yield server.publish("t", pa.Table.from_batches(made.to_batches(max_chunksize=300)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [0, 500])
def test_columns_are_decoded_batch_by_batch(images: bow.Endpoint, workers: int, shuffle: int) -> None:
    """A function gets the values of each batch, nulls as None, beside tensors of the same rows."""
    dataset = bow.torch.IterableDataset(
        images,
        columns=["text", "n", "image"],
        batch_size=128,
        shuffle_buffer=shuffle,
        decode={"image": pixels, "text": tuple},
    )
    found: list[Any] = []
    for batch in DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context="fork" if workers else None
    ):
        assert list(batch) == ["text", "n", "image"]
        assert batch["image"].shape == (len(batch["n"]), 2)
        found += zip(map(bytes, batch["image"].tolist()), batch["text"], batch["n"].tolist(), strict=True)
    assert sorted(found, key=lambda row: row[2]) == values("image", "text", "n")
    if shuffle or not workers:
        assert (found == values("image", "text", "n")) is not bool(shuffle)


def test_what_cannot_be_decoded_is_refused(images: bow.Endpoint) -> None:
    """Functions for other columns, no functions, and memory of a GPU are refused; text alone names decode=."""
    for decode in ({"other": list}, {"text": 3}):
        with pytest.raises(bow.UsageError, match="decode has a function"):
            bow.torch.IterableDataset(images, columns=["text"], decode=decode)  # type: ignore[arg-type]
    with pytest.raises(bow.UsageError, match="decode and device='cuda:0'"):
        bow.torch.IterableDataset(images, columns=["text"], decode={"text": list}, device="cuda:0")
    with pytest.raises(bow.Unsupported, match="decode="):
        list(bow.torch.IterableDataset(images, columns=["text"]))


def test_epochs_and_seeds(published: bow.Endpoint) -> None:
    """The order depends on the seed and on set_epoch, and on nothing else."""

    def order(seed: int, epoch: int) -> list[int]:
        dataset = bow.torch.IterableDataset(published, columns=["n"], shuffle_buffer=500, seed=seed)
        dataset.set_epoch(epoch)
        return numbers(pickle.loads(pickle.dumps(dataset)))

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_shards_and_last_batches(published: bow.Endpoint) -> None:
    """A shard is a share of the rows; drop_last leaves out what fills no batch."""
    found = []
    for index in range(3):
        dataset = bow.torch.IterableDataset(published, columns=["n"], shard=(index, 3), batch_size=64)
        found += numbers(dataset)
    assert sorted(found) == list(range(ROWS))
    dataset = bow.torch.IterableDataset(published, columns=["n"], batch_size=64, drop_last=True)
    assert {batch["n"].shape[0] for batch in dataset} == {64}


def test_ranks_of_the_environment(published: bow.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process group, ``RANK`` and ``WORLD_SIZE`` say which share is read."""
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        found.append(numbers(bow.torch.IterableDataset(str(published), columns=["n"])))
    assert sorted(found[0] + found[1]) == list(range(ROWS))
    assert all(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_ranks(published: bow.Endpoint, workers: int) -> None:
    """Two processes of torchrun read each row once, and train on equally many batches to the same weights."""
    program = Path(__file__).parent / "programs" / "ranks.py"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(program),
    ]
    done = subprocess.run(
        [*command, str(published), str(workers)], capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, other = json.loads(done.stdout.strip().splitlines()[-1])
    assert sorted(one["rows"] + other["rows"]) == list(range(ROWS))
    assert one["batches"] == other["batches"] > 0
    assert one["weights"] == other["weights"]
    assert np.allclose(one["weights"], [2.0, -1.0, 0.5], atol=0.05)


WRONG: list[dict[str, Any]] = [
    {"columns": ["missing"]}, {"columns": []}, {"columns": "d"}, {"decimals": "float"}, {"shard": (2, 2)},
    {"even": True}, {"batch_size": 0}, {"epochs": 0}, {"seed": -1}, {"shuffle_buffer": 9, "device": "cuda"},
]  # fmt: skip


def test_what_is_refused(published: bow.Endpoint) -> None:
    """Wrong arguments, unknown columns and columns without numbers are refused before anything is read."""
    with bow.Server() as server:
        endpoint = server.publish("s", pa.table({"s": ["a"], "d": pa.array([1], pa.decimal128(5, 2))}))
        for columns in (["s"], ["d"]):
            with pytest.raises(bow.Unsupported, match=columns[0]):
                bow.torch.IterableDataset(str(endpoint), columns=columns)
        for wrong in WRONG:
            options: Any = {"columns": ["d"], "decimals": "unscaled", **wrong}
            with pytest.raises(bow.UsageError):
                bow.torch.IterableDataset(str(endpoint), **options)
        dataset = bow.torch.IterableDataset(endpoint, columns=["d"], decimals="unscaled")
        assert [batch["d"].tolist() for batch in dataset] == [[100]]
    with pytest.raises(bow.UsageError, match="not a source"):
        bow.torch.IterableDataset(3, columns=["n"])  # type: ignore[arg-type]


def test_gpus_are_for_one_process(published: bow.Endpoint) -> None:
    """Tensors of a GPU are refused in a loader's workers, by name."""
    dataset = bow.torch.IterableDataset(published, columns=["n"], device="cuda:0")
    with pytest.raises(bow.UsageError, match="num_workers=0"):
        list(DataLoader(dataset, batch_size=None, num_workers=1))
