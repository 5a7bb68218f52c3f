"""What a full depot holds is said where somebody sees it, in the user's words."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot.publishing import data_set_id
from bowstring.depot.slab_pool import LIMITED
from bowstring.spark import waiting
from bowstring.spark.application_lease import Application
from bowstring.spark.task import Order


def test_a_warning_is_seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler of the program's the warning is a line on stderr; with one, it is that one's to show."""
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("bowstring"), "handlers", [logging.NullHandler()])
    waiting._warn("no room")
    assert capsys.readouterr().err == "bowstring: no room\n"
    monkeypatch.setattr(logging.getLogger("bowstring"), "handlers", [Keep()])
    waiting._warn("no room")
    assert (records, capsys.readouterr().err) == (["no room"], "")


def test_no_room_names_what_holds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The error for a job that found no room names data sets as the user does, and is made for no other error."""
    monkeypatch.setenv("BOWSTRING_DEPOT", str(tmp_path))
    tmp_path.chmod(0o700)
    application = Application("app", lambda: False)
    order = Order("app", data_set_id("mine", "1"))
    spark_says = RuntimeError(
        "Job aborted\nbowstring.errors.OutOfBudget: the depot had no room in time\n\tat java"
    )
    options = bow.depot.Options(memory_budget=4 << 20, disk_budget=0)
    with bow.depot.connect(options=options) as depot:
        try:
            for name in ("a #1", "mine", ""):
                with depot.begin(application="app", dataset=data_set_id(name, "0")) as attempt:
                    attempt.write(pa.table({"n": range(100_000)}))
                    attempt.commit()
            found = str(waiting.no_room(spark_says, order, application, "mine"))
        finally:
            depot.stop()
    for text in ("to publish 'mine'", "'a #1' 78", "one without a name", "of 4.0 MiB of memory"):
        assert text in found
    assert "bow.spark.drop('mine') first frees the earlier one" in found
    spark_says = RuntimeError(
        "Job aborted\nbowstring.errors.OutOfBudget: the depot had no room in time"
        f"{' in a long text' * 50}; the system gives no more: no room to map; expected 12 bytes (RLIMIT_AS). "
        f"{LIMITED}\n\tat java"
    )
    found = str(waiting.no_room(spark_says, order, application, "mine"))
    for text in (
        "no room to map; expected 12 bytes (RLIMIT_AS)",
        "spark.executor.pyspark.memory",
        "bowstring depot run",
    ):
        assert text in found
    assert waiting.no_room(RuntimeError("another"), order, application, "mine") is None
    application.end()
