"""What the kernels that write and compare Variants are compared with: the same, row by row in plain Python."""

from __future__ import annotations

from collections.abc import Iterator

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Status
from bowstring.variant.codec.decode import decode
from bowstring.variant.codec.primitives import Value
from bowstring.variant.column import dictionary_of
from bowstring.variant.json.writer import rows_of
from tests.variant.get_columns import Row
from tests.variant.json_write import Rules, json_of

ALL_RULES: tuple[Rules, ...] = ("plain", "spark")


def trees_of(rows: list[Row]) -> Iterator[Value | BowstringError | None]:
    """Yield the tree of each row, None for an SQL NULL, or what decoding it raises."""
    for row in rows:
        try:
            yield None if row is None else decode(*row)
        except BowstringError as error:
            yield error


def texts_by_host(rows: list[Row], rules: Rules) -> list[str | BowstringError | None]:
    """Return the JSON text of each row, or what decoding it raises."""
    return [json_of(tree, rules) if isinstance(tree, Value) else tree for tree in trees_of(rows)]


def texts_by_kernel(column: Column, rules: Rules) -> list[str | Status | None]:
    """Return the JSON text of each row, or its status where that is an error."""
    opened = variant.open_column(column)
    texts = rows_of(opened, dictionary_of(opened), rules=rules, limits=DEFAULT_LIMITS).texts()
    to_host = column.device.to_host
    offsets, data = to_host(texts.offsets).tolist(), to_host(texts.data).tobytes()
    found: list[str | Status | None] = []
    for row, status in enumerate(map(Status, to_host(texts.statuses).tolist())):
        text = data[offsets[row] : offsets[row + 1]].decode()
        assert text or status != Status.OK
        assert not text or status == Status.OK
        found.append(text if status == Status.OK else None if status == Status.SQL_NULL else status)
    assert offsets[-1] == len(data)
    return found


def check_texts(column: Column, rows: list[Row]) -> None:
    """Check that kernels write what the host writes, and refuse what it refuses."""
    for rules in ALL_RULES:
        expected = texts_by_host(rows, rules)
        for row, (text, right) in enumerate(zip(texts_by_kernel(column, rules), expected, strict=True)):
            if isinstance(right, BowstringError):
                assert isinstance(text, Status), (rows[row], text, right)
            else:
                assert text == right, rows[row]
