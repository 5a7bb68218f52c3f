"""Facts: what an inspection finds, as JSON would hold it, and the tree that is drawn of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from bowstring.cli.terminal import Branch, number, size
from bowstring.columnar import Batch, Kind, Layout
from bowstring.columnar.parts import batch_parts

Facts = dict[str, Any]


def schema_facts(schema: pa.Schema) -> list[Facts]:
    """Return name, type and metadata of each column."""
    columns = []
    for field in schema:
        facts: Facts = {"name": field.name, "type": str(field.type), "nullable": field.nullable}
        if field.metadata:
            facts["metadata"] = metadata_facts(field.metadata)
        columns.append(facts)
    return columns


def metadata_facts(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return key-value metadata as text."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}


def node_facts(
    layout: Layout, nodes: npt.NDArray[Any], sizes: Sequence[int], variadic_counts: Sequence[int] = ()
) -> list[Facts]:
    """Return the columns of a batch: their lengths, nulls and buffers, with the children inside them.

    `nodes` has shape (nodes, 2): length and null count; `sizes` are in the order of ``RecordBatch.buffers``.
    """
    first = layout.first_buffers(variadic_counts).tolist()

    def facts_of(index: int) -> Facts:
        node = layout.nodes[index]
        length, nulls = nodes[index].tolist()
        here = sizes[first[index] : first[index + 1]]
        kinds = [*node.buffer_kinds, *[Kind.VARIADIC] * (len(here) - len(node.buffer_kinds))]
        facts: Facts = {
            "name": str(node.path[-1]),
            "type": str(node.type),
            "length": length,
            "nulls": nulls if nulls >= 0 else None,
            "buffers": [
                {"kind": kind.name.lower(), "bytes": int(nbytes)}
                for kind, nbytes in zip(kinds, here, strict=True)
            ],
        }
        if node.dictionary_id is not None:
            facts["dictionary"] = node.dictionary_id
        if node.children:
            facts["children"] = [facts_of(child) for child in node.children]
        return facts

    return [facts_of(index) for index in layout.columns]


def batch_facts(batch: Batch) -> Facts:
    """Return rows, bytes, columns and dictionaries of a batch."""
    parts = batch_parts(batch)
    sizes = parts.spans.table[:, 2].tolist()
    facts: Facts = {
        "rows": batch.num_rows,
        "bytes": batch.nbytes,
        "columns": node_facts(batch.layout, parts.nodes, sizes, parts.variadic_counts),
    }
    if batch.dictionaries:
        facts["dictionaries"] = [
            {"id": id_, "rows": each.values.num_rows, "bytes": each.values.nbytes}
            for id_, each in batch.dictionaries.items()
        ]
    return facts


def tree_of(label: str, facts: Facts) -> Branch:
    """Return the tree that is drawn of facts: one line for each, lists and objects below their name."""
    branch = Branch(label)
    for key, value in facts.items():
        if isinstance(value, list):
            _grow_list(branch.add(f"{_words(key)}: {number(len(value))}"), value)
        elif isinstance(value, dict):
            branch.branches.append(tree_of(_words(key), value))
        else:
            branch.add(_said(key, value))
    return branch


def _grow_list(branch: Branch, items: list[Any]) -> None:
    for item in items:
        if not isinstance(item, dict):
            branch.add(str(item))
            continue
        nested = {
            key: value for key, value in item.items() if isinstance(value, list | dict) and key != "buffers"
        }
        below = branch.add(_line(item))
        for key, value in nested.items():
            if isinstance(value, list):
                # Columns and children need no heading of their own.
                _grow_list(below if key in _WITHOUT_HEADING else below.add(_words(key)), value)
            else:
                below.add(f"{_words(key)}: {', '.join(f'{name}={text}' for name, text in value.items())}")


_WITHOUT_HEADING = frozenset({"columns", "children", "dictionaries"})
_NAMES = ("name", "kind", "id")
_COUNTED = {"rows": "rows", "nulls": "nulls", "batches": "batches", "length": "slots"}


def _line(item: Facts) -> str:
    """Write the plain facts of one item on one line, its name first."""
    head = next((key for key in _NAMES if key in item), None)
    start = "" if head is None else (f"dictionary {item[head]}" if head == "id" else str(item[head]))
    if "type" in item:
        start += f": {item['type']}"
    plain = [
        _said(key, value)
        for key, value in item.items()
        if key not in (head, "type")
        and not isinstance(value, list | dict)
        and not (key == "nullable" and value)
    ]
    plain += _said_buffers(item.get("buffers", []))
    return ", ".join([start, *plain] if start else plain)


def _said_buffers(buffers: list[Facts]) -> list[str]:
    """Write the buffers that are there; many of one kind in a row, as views have them, together."""
    said = []
    for kind, run in itertools.groupby(buffers, key=lambda buffer: buffer["kind"]):
        sizes = [buffer["bytes"] for buffer in run if buffer["bytes"]]
        if len(sizes) > 1:
            said.append(f"{number(len(sizes))} {kind} {size(sum(sizes))}")
        elif sizes:
            said.append(f"{kind} {size(sizes[0])}")
    return said


def _said(key: str, value: Any) -> str:
    words = _words(key)
    if value is None:
        return f"{words} unknown"
    if value is False and key == "nullable":
        return "not null"
    if isinstance(value, bool):
        return f"{words}: {'yes' if value else 'no'}"
    if key == "bytes":
        return size(value)
    if key.endswith("_bytes"):
        return f"{words.removesuffix(' bytes')} {size(value)}"
    if key in _COUNTED:
        return f"{number(value)} {_COUNTED[key]}"
    return f"{words} {value}" if isinstance(value, int) else f"{words}: {value}"


def _words(key: str) -> str:
    return key.replace("_", " ")
