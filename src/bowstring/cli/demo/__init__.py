"""``bowstring demo``: the main job on real data, in two processes of its own; then a pipeline through Spark."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any, Final

from bowstring.errors import BrokenError, DeadlineExceeded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["run"]

ROUNDS: Final = 3
"""How often the hand-over from Spark is measured."""
_FLIGHTS_ROUNDS: Final = 15
_PUBLISH_SECONDS = 60.0
_READ_SECONDS = 300.0
_END_SECONDS = 5.0
_MOST_LINE = 64 * 1024


def run(arguments: argparse.Namespace) -> int:
    """Be process A, or process B; or start both and see that they end, and then a pipeline through Spark."""
    if arguments.publish:
        from bowstring.cli.demo.producer import publish

        return publish(arguments)
    if arguments.read is not None:
        from bowstring.cli.demo.consumer import read

        return read(arguments)
    if arguments.spark:
        return _through_spark(arguments)
    from bowstring.cli.demo.flights import data_folder

    data_folder()  # what is missing is said here, not by a child
    if arguments.flights:
        return _both(arguments)
    return _whole(arguments)


def _whole(arguments: argparse.Namespace) -> int:
    """Run both parts; without what Spark needs the first part alone, and say what is missing."""
    from bowstring.cli.pipeline import missing, pipeline

    absent = missing()
    if arguments.json:
        with tempfile.TemporaryFile() as said:
            code = _both(arguments, said)
            said.seek(0)
            whole: dict[str, Any] = {"flights": json.load(said), "missing": absent}
        if not absent:
            outcome = pipeline(rounds=arguments.rounds or ROUNDS, device=arguments.device, quiet=True)
            code = code or int(not outcome.verified)
            whole["pipeline"] = outcome.as_json()
        print(json.dumps(whole))
        return code
    print("1. Two processes\n")
    code = _both(arguments)
    print("\n2. Spark, a process without it, and back\n", flush=True)
    if absent:
        print(f"This part needs {', '.join(absent)}: pip install 'bowstring[demo]'")
        return code
    return _through_spark(arguments) or code


def _through_spark(arguments: argparse.Namespace) -> int:
    from bowstring.cli.pipeline import pipeline
    from bowstring.cli.pipeline.printing import print_outcome

    outcome = pipeline(rounds=arguments.rounds or ROUNDS, device=arguments.device, quiet=arguments.json)
    if arguments.json:
        print(json.dumps(outcome.as_json()))
    else:
        print_outcome(outcome)
    return 0 if outcome.verified else 1


def _both(arguments: argparse.Namespace, said: IO[bytes] | None = None) -> int:
    # When this process ends, however it ends, A reads the end of its input, and ends too.
    producer = ["--publish", "--json", "--transport", arguments.transport, "--end-with-stdin"]
    with _process(producer, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process_a:
        uri = _uri(process_a)
        rounds = str(arguments.rounds or _FLIGHTS_ROUNDS)
        consumer = ["--read", uri, "--rounds", rounds, *(["--json"] if arguments.json else [])]
        sys.stdout.flush()
        with _process(consumer, stdout=said) as process_b:
            try:
                return process_b.wait(_READ_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise DeadlineExceeded(
                    "process B did not end", expected=f"within {_READ_SECONDS} s"
                ) from error


@contextlib.contextmanager
def _process(arguments: Sequence[str], **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of the demo; it has ended when the ``with`` block has."""
    command = [sys.executable, "-m", "bowstring", "demo", *arguments]
    # In a session of its own it hears no Ctrl-C in the middle of an import; this process passes on the end.
    process = subprocess.Popen(command, start_new_session=True, **pipes)  # noqa: S603  our own program
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    elif process.poll() is None:
        process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _uri(process: subprocess.Popen[bytes]) -> str:
    """Read the line on which process A says where it publishes."""
    assert process.stdout is not None
    end = time.monotonic() + _PUBLISH_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise DeadlineExceeded("process A published nothing", expected=f"within {_PUBLISH_SECONDS} s")
        part = os.read(process.stdout.fileno(), _MOST_LINE)
        if not part:
            raise BrokenError(
                "process A ended before it published", found=f"exit code {process.wait(_END_SECONDS)}"
            )
        line += part
    answer = json.loads(line)
    if "error" in answer:
        raise BrokenError("process A could not publish", found=answer["error"]["message"])
    return str(answer["uri"])
