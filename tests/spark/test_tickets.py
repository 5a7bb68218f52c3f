"""Tickets become one data set, in the order of the partitions."""

from __future__ import annotations

import pickle
import types
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import InvalidData, UsageError
from bowstring.spark.published import PublishedDataset, RunningDataset
from bowstring.spark.tickets import Ticket, dataset_of

SCHEMA = pa.schema([("a", pa.int64())])
PACKED = SCHEMA.serialize().to_pybytes()


def ticket(partition: int, rows: int = 1, schema: bytes = PACKED) -> Ticket:
    """Return the ticket of a partition."""
    uri = f"unix:/run/x.sock?want_data=1&ticket=dA{partition:06d}" if rows else ""
    return Ticket(partition, uri, schema if rows else b"", rows, 1, 8 * rows)


class Row(dict[str, Any]):
    """A row as Spark gives it."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Return its fields."""
        return dict(self)


@pytest.mark.parametrize("kind", [Dataset, PublishedDataset, RunningDataset])
@pytest.mark.parametrize(("partitions", "columns"), [(1, 1), (5_000, 1), (1, 5_000)])
def test_a_console_shows_one_line(kind: type[Dataset], partitions: int, columns: int) -> None:
    """However many partitions and columns it has, a data set prints as one short line, which counts them."""
    schema = pa.schema([(f"column {each}", pa.int64()) for each in range(columns)])
    whole = dataset_of(map(ticket, range(partitions)), schema, name="trips")
    if kind is RunningDataset:  # what its job makes is not known yet
        shown = repr(RunningDataset((), schema, metadata=whole.metadata))
    else:
        shown = repr(kind(whole.endpoints, schema, whole.num_rows, whole.nbytes, whole.metadata))
        assert f"{partitions:,} rows" in shown
        assert f"{partitions} endpoint" in shown
    assert shown.startswith(f"<{kind.__name__} ")
    assert f"{columns} columns" in shown
    assert len(shown) < 200
    assert "\n" not in shown


@given(st.lists(st.integers(0, 5), max_size=8), st.randoms())
def test_partitions_keep_their_order(rows: list[int], random: Any) -> None:
    """However the tickets come, endpoints are in the order of partitions, and those without rows are left out."""
    tickets = [ticket(partition, count) for partition, count in enumerate(rows)]
    random.shuffle(tickets)
    found = dataset_of(tickets, SCHEMA, name="t")
    present = [partition for partition, count in enumerate(rows) if count]
    assert found.metadata == {"name": "t", "partitions": present, "rows": [rows[each] for each in present]}
    assert [str(each) for each in found] == [ticket(partition).endpoint for partition in present]
    assert (found.num_rows, found.nbytes) == (sum(rows), 8 * sum(rows))
    assert found.schema == SCHEMA


def test_a_partition_counts_once() -> None:
    """Two tickets of one partition are refused: one of them would double its rows."""
    with pytest.raises(InvalidData, match=r"partitions \[3\]"):
        dataset_of([ticket(3), ticket(1), ticket(3)], SCHEMA)


def test_one_schema() -> None:
    """Partitions with another schema, or another field's metadata, are refused by their number."""
    for other in (
        pa.schema([("a", pa.int32())]),
        pa.schema([pa.field("a", pa.int64(), metadata={"ARROW:extension:name": "x"})]),
    ):
        with pytest.raises(InvalidData, match="partition 2"):
            dataset_of([ticket(1), ticket(2, schema=other.serialize().to_pybytes())], SCHEMA)


@given(
    st.builds(
        Ticket,
        st.integers(0, 2**31 - 1),
        st.text(max_size=20),
        st.binary(max_size=20),
        *[st.integers(0, 2**63 - 1)] * 3,
        st.text(max_size=5),
        st.text(max_size=5),
    )
)
def test_tickets_go_through_spark(given: Ticket) -> None:
    """A ticket that went to Spark as a row of Arrow comes back as it was."""
    [row] = given.as_batch().to_pylist()
    assert Ticket.of_row(Row(row)) == given


def test_elsewhere_it_is_a_plain_data_set() -> None:
    """What is sent to another process is a Dataset; only the driver can release or publish again."""
    calls: list[Any] = []
    plain = dataset_of([ticket(0)], SCHEMA, name="t")

    def republish(partitions: frozenset[int]) -> Dataset:
        calls.append(partitions)
        return plain

    publication: Any = types.SimpleNamespace(
        release=lambda: calls.append("release"), wait_released=calls.append, republish=republish
    )
    published = PublishedDataset(**vars(plain), control=publication)
    published.release()
    published.wait_released(2.0)
    published.republish([1, 1])
    assert calls == ["release", 2.0, frozenset({1})]
    sent = pickle.loads(pickle.dumps(published))
    assert type(sent) is Dataset
    assert sent == plain
    # Dask names its tasks by this, and refuses what differs each time, as a publication does.
    make, content = published.__dask_tokenize__()
    assert make(*content) == plain
    with pytest.raises(UsageError, match="only the process that published"):
        PublishedDataset(**vars(plain)).release()
