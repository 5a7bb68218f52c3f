"""A Parquet file: its footer alone is read."""

from __future__ import annotations

import contextlib
from typing import Any

from bowstring.cli.inspection.facts import Facts, schema_facts
from bowstring.parquet.file import OpenFile
from bowstring.parquet.schema import ColumnType, described

__all__ = ["inspect_parquet"]


def inspect_parquet(path: str, most: int) -> Facts:
    """Return what the footer of a Parquet file says.

    Parameters
    ----------
    path
        The file.
    most
        How many row groups are shown with their columns.
    """
    with contextlib.closing(OpenFile(path)) as file:
        footer = file.metadata
        groups = [_row_group(footer.row_group(index), index, most) for index in range(footer.num_row_groups)]
        return {
            "rows": footer.num_rows,
            "footer_bytes": footer.serialized_size,
            "format_version": footer.format_version,
            "created_by": footer.created_by,
            "schema": schema_facts(file.schema),
            "stored_columns": [_stored(each) for each in described(file).columns],
            "row_groups": groups,
        }


def _stored(column: ColumnType) -> Facts:
    facts: Facts = {"name": ".".join(column.path), "type": column.physical or "group"}
    if column.logical is not None:
        facts["logical_type"] = column.logical
    return {**facts, "repetition": column.repetition, "read_as": str(column.arrow)}


def _row_group(group: Any, index: int, most: int) -> Facts:
    facts: Facts = {
        "name": f"row group {index}",
        "rows": group.num_rows,
        "uncompressed_bytes": group.total_byte_size,
    }
    if index < most:
        facts["columns"] = [_chunk(group.column(position)) for position in range(group.num_columns)]
    return facts


def _chunk(chunk: Any) -> Facts:
    facts: Facts = {
        "name": chunk.path_in_schema,
        "type": chunk.physical_type,
        "compression": chunk.compression,
        "encodings": " ".join(dict.fromkeys(chunk.encodings)),
        "compressed_bytes": chunk.total_compressed_size,
        "uncompressed_bytes": chunk.total_uncompressed_size,
    }
    if chunk.is_stats_set and chunk.statistics is not None and chunk.statistics.has_null_count:
        facts["nulls"] = chunk.statistics.null_count
    return facts
