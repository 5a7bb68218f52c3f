"""A scenario of much memory: one batch of a gibibyte."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

import bowstring as bow
from tests.spark.publishing.local import held, wait_for

_ROWS = 1024
_WIDE = 1 << 20


def start() -> Any:
    """Return a session whose batches are not bounded, with the memory for one."""
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "5g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    }
    return bow.spark.session(master="local[1]", config=config)


def one_batch_of_a_gibibyte(session: Any) -> None:
    """A partition of 1 GiB comes as the one batch that Spark makes of it, every byte as it was."""
    frame = session.range(0, _ROWS, 1, 1).selectExpr("id", f"repeat(chr(97 + id % 26), {_WIDE}) as text")
    published = bow.spark.publish(frame, "large")
    assert published.nbytes is not None
    assert published.nbytes >= _ROWS * _WIDE
    with bow.connect(published) as stream:
        [batch] = list(stream)
        text = batch["text"].to_arrow()
        assert pc.all(pc.equal(pc.binary_length(text), _WIDE)).as_py()
        for row in range(0, _ROWS, 37):
            assert text[row].as_py() == chr(97 + row % 26) * _WIDE
        assert batch["id"].to_arrow().to_pylist() == list(range(_ROWS))
        del batch, text
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


SCENARIOS = [one_batch_of_a_gibibyte]
