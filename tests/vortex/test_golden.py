"""Streams that other writers made hold the values that they are known to hold, on the host and on a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.batch import Batch
from bowstring.testing import fake_device
from tests.vortex.values import same_values


def entries(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return what a manifest lists."""
    found: list[dict[str, Any]] = json.loads((folder / name).read_text())
    return found


def on_device(data: bytes) -> bow.Buffer:
    """Return bytes as a buffer of the fake device."""
    batch = Batch.from_arrow({"bytes": np.frombuffer(data, np.uint8)}).to_device(fake_device())
    found = batch.buffers[1]
    assert found is not None
    return found


@pytest.mark.parametrize("place", ["path", "device"])
def test_streams_of_vortex_data_hold_the_expected_values(vortex_test_data: Path, place: str) -> None:
    """Every stream of the manifest, of every encoding that the default writer and the compact one use."""
    for entry in entries(vortex_test_data, "manifest.json"):
        path = vortex_test_data / entry["file"]
        with pa.ipc.open_file(str(vortex_test_data / entry["expected"])) as file:
            expected = file.read_all()
        with bow.vortex.open_stream(path if place == "path" else on_device(path.read_bytes())) as stream:
            batches = list(stream)
            table = pa.Table.from_batches(
                [each.decode().to_arrow() for each in batches], schema=stream.schema
            )
        table.validate(full=True)
        assert [each.num_rows for each in batches] == entry["rows"], entry["file"]
        assert table.num_columns == expected.num_columns
        for position in range(table.num_columns):
            assert same_values(table.column(position), expected.column(position)), (entry["file"], position)


def test_streams_made_by_hand_hold_the_expected_values(vortex_test_data: Path) -> None:
    """Every stream of the other manifest: encodings that no default writer uses, offsets, patches, padding."""
    for entry in entries(vortex_test_data, "manifest-handmade.json"):
        with bow.vortex.open_stream(vortex_test_data / entry["file"]) as stream:
            table = stream.read_all()
        table.validate(full=True)
        column, type_ = table.column(0), table.schema.field(0).type
        if pa.types.is_timestamp(type_):
            column = column.cast(pa.int64())
        found = column.to_pylist()
        if pa.types.is_decimal(type_):
            found = [int(each.scaleb(type_.scale)) for each in found]
        assert found == entry["expected_json"], entry["file"]


def test_the_tree_of_encodings_names_those_of_the_manifest(vortex_test_data: Path) -> None:
    """`encoding` shows what was sent, and its sizes add up to those of the buffers."""
    for entry in entries(vortex_test_data, "manifest.json"):
        names: set[str] = set()
        with bow.vortex.open_stream(vortex_test_data / entry["file"]) as stream:
            for batch in stream:
                waiting = [batch.encoding()]
                assert waiting[0].nbytes == batch.nbytes
                while waiting:
                    each = waiting.pop()
                    names.add(each.id)
                    waiting += each.children
        assert sorted(names) == sorted(entry["encodings"]), entry["file"]


def test_a_column_is_decoded_alone(vortex_test_data: Path) -> None:
    """Of a table, a column that is asked for is that of the whole batch."""
    with bow.vortex.open_stream(vortex_test_data / "vortex-data-0.90.0" / "taxi__compressed.vxipc") as stream:
        batch = stream.read_next_batch()
        whole = batch.decode()
        for name in stream.schema.names:
            assert batch[name].to_arrow().equals(whole[name].to_arrow())
            assert batch.encoding(name).nbytes > 0
        assert batch.decode(stream.schema.names[2:0:-1]).schema.names == stream.schema.names[2:0:-1]
