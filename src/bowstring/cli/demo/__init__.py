"""``bowstring demo``: the main job on real data, in two processes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from bowstring.errors import BrokenError, DeadlineExceeded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["run"]

_PUBLISH_SECONDS = 60.0
_READ_SECONDS = 300.0
_END_SECONDS = 5.0
_MOST_LINE = 64 * 1024


def run(arguments: argparse.Namespace) -> int:
    """Be process A, or process B, or start both and see that they end."""
    if arguments.publish:
        from bowstring.cli.demo.producer import publish

        return publish(arguments)
    if arguments.read is not None:
        from bowstring.cli.demo.consumer import read

        return read(arguments)
    from bowstring.cli.demo.flights import data_folder

    data_folder()  # what is missing is said here, not by a child
    return _both(arguments)


def _both(arguments: argparse.Namespace) -> int:
    # When this process ends, however it ends, A reads the end of its input, and ends too.
    producer = ["--publish", "--json", "--transport", arguments.transport, "--end-with-stdin"]
    with _process(producer, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process_a:
        uri = _uri(process_a)
        consumer = ["--read", uri, "--rounds", str(arguments.rounds), *(["--json"] if arguments.json else [])]
        sys.stdout.flush()
        with _process(consumer) as process_b:
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
