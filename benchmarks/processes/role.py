"""What a started process runs: one object, whose methods the harness calls.

``python -m bowstring.benchmarks.processes.role module:Role '{"argument": …}'``. Each line on standard input is a
call, each line on what was standard output its answer; the process ends with its standard input, so it never
outlives the harness for longer than one call.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import sys
import traceback
from typing import Any, TextIO

from bowstring.benchmarks.profiling import profiled


def main(argv: list[str]) -> None:
    """Answer calls until standard input ends."""
    name, arguments = argv
    # Whatever prints here must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    role = _answer(answers, lambda: _role(name)(**json.loads(arguments)), shown=False)
    if role is None:
        sys.exit(1)
    with profiled(name.rpartition(":")[2]):
        for line in sys.stdin:
            call = json.loads(line)
            method = operator.attrgetter(call["method"])
            _answer(answers, lambda: method(role)(**call["arguments"]))  # noqa: B023  called at once
    close = getattr(role, "close", None)
    if close is not None:
        close()


def _role(name: str) -> Any:
    module, _, role = name.partition(":")
    return operator.attrgetter(role)(importlib.import_module(module))


def _answer(answers: TextIO, work: Any, *, shown: bool = True) -> Any:
    """Do the work and write what came of it; return it."""
    try:
        result = work()
        answer = {"result": result if shown else None}
    except Exception as error:  # noqa: BLE001  it is raised again in the harness
        traceback.print_exc()
        result = None
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
