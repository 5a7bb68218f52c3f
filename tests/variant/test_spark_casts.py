"""The `spark` mode of casts, cell by cell as Spark gives it: recorded (scripts/record_spark_casts.py), and live."""

from __future__ import annotations

import decimal
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.variant import Value
from tests.variant.conftest import Move
from tests.variant.decoding import decode
from tests.variant.get_columns import Row, column_of
from tests.variant.spark_casts import TYPES, VALUES, ask_spark, rows_of
from tests.variant.spark_peer import WANTED, typed
from tests.variant.spark_random import random_value

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "spark-casts.json").read_text()
)
ROWS: list[Row] = [
    (bytes.fromhex(each["metadata"]), bytes.fromhex(each["value"])) for each in RECORDED["rows"]
]


def read(answer: Any, name: str = "") -> Any:
    """Return a typed answer with its Variants decoded: Spark writes other bytes for the same values.

    What Spark takes for text though it is no UTF-8 is null: no Arrow text can hold it.
    """
    if isinstance(answer, list):
        return [read(each, name) for each in answer]
    if not isinstance(answer, dict):
        return answer
    if answer.keys() == {"metadata", "value"}:
        return plain(decode(*(bytes.fromhex(answer[each]["hex"]) for each in ("metadata", "value"))))
    if answer.keys() == {"hex"} and "string" in name:
        return None
    return {key: read(each, name) for key, each in answer.items()}


def plain(value: Value) -> Any:
    """Return a tree whose parts compare, NaN too, and whose objects have no order."""
    if value.type == "object":
        return {key: plain(child) for key, child in value.value.items()}
    return [plain(child) for child in value.value] if value.type == "array" else repr(value)


def recorded(name: str) -> list[Any]:
    """Return the column of one type, and behind it that of an SQL NULL."""
    return [*(each["casts"].get(name) for each in RECORDED["rows"]), None]


def compare(column: Column, rows: list[Row], name: str, answers: list[Any]) -> None:
    """Check one type of the matrix, and name the first cells that differ."""
    found = typed(variant.get(column, "$", TYPES[name], cast="spark").to_arrow())
    differ = [
        f"{row if row is None else decode(*row)}: Spark {theirs!r}, not {ours!r}"
        for row, ours, theirs in zip(
            rows, (read(each, name) for each in found), (read(each, name) for each in answers), strict=True
        )
        if (type(ours), ours) != (type(theirs), theirs)
    ]
    assert not differ, f"{len(differ)} cells of {name}:\n" + "\n".join(differ[:20])


@pytest.mark.parametrize("name", TYPES)
def test_the_recorded_cells(name: str, on_device: Move) -> None:
    """Every value becomes what Spark makes of it; what Spark gives NULL for is null."""
    rows: list[Row] = [*ROWS, None]
    compare(on_device(column_of(rows)), rows, name, recorded(name))


def test_below_a_path(on_device: Move) -> None:
    """A cell is the same for a value below a path; what is missing is null."""
    below = [Value("object", {"k": value}) for value in VALUES]
    column = on_device(column_of(rows_of(below)))
    for name in ("int", "decimal(18,4)", "string", "timestamp", "array<int>"):
        answers = [read(each, name) for each in recorded(name)]
        assert typed(variant.get(column, "$.k", TYPES[name], cast="spark").to_arrow()) == answers
        assert variant.get(column, "$.missing", TYPES[name], cast="spark").null_count == len(below) + 1


def test_the_record_is_of_these_values() -> None:
    """The file holds the values that the script would record today."""
    assert rows_of(VALUES) == [*ROWS, None]


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    """Start Spark, whose own warnings are none of ours."""
    pytest.importorskip("pyspark", reason=f"Spark itself is not installed: {WANTED}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
@pytest.mark.peers
def test_spark_says_the_same_today(spark: None) -> None:
    """Spark gives the recorded cells."""
    answers = ask_spark([*ROWS, None])
    for name in TYPES:
        before = [*(each["casts"].get(name) for each in RECORDED["rows"]), None]
        assert list(map(read, answers[name])) == list(map(read, before)), name


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("seed", range(3))
def test_random_values_live(seed: int, spark: None) -> None:
    """Random values of every type that Spark knows become what Spark makes of them, in every type."""
    drawn = random.Random(seed)
    with decimal.localcontext(prec=64):
        rows = rows_of([random_value(drawn) for _ in range(3000)])
    answers, column = ask_spark(rows), column_of(rows)
    for name in TYPES:
        compare(column, rows, name, answers[name])
