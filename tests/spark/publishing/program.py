"""Runs scenarios in a process with a session of Spark and a depot of its own; prints what came of each."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import traceback
from typing import Any

import bowstring as bow


def main() -> None:
    """Run the scenarios of the module that is named, in the order in which they stand there."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        # Before Java starts: executors and their workers get it from there.
        os.environ["BOWSTRING_DEPOT"] = folder
        module = importlib.import_module(f"tests.spark.publishing.{name}")
        session = module.start()
        if hasattr(session, "sparkContext"):  # a session of Spark Connect has none
            session.sparkContext.setLogLevel("OFF")
        try:
            for scenario in module.SCENARIOS:
                print(json.dumps(_outcome(scenario, session)), flush=True)
        finally:
            session.stop()
            _end(folder)


def _outcome(scenario: Any, session: Any) -> dict[str, str]:
    try:
        scenario(session)
    except BaseException:  # noqa: BLE001  whatever it is, the test shows it
        return {"name": scenario.__name__, "error": traceback.format_exc()}
    return {"name": scenario.__name__, "error": ""}


def _end(folder: str) -> None:
    try:
        with bow.depot.connect(folder=folder, start=False) as depot:
            depot.stop()
    except bow.BrokenError:
        pass


if __name__ == "__main__":
    main()
