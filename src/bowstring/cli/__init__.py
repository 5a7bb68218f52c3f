"""The command line: ``bowstring demo | serve | list | fetch | inspect | doctor | depot | completion | bench``.

A command's module is imported when the command runs, so that ``bowstring --help`` is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from bowstring.cli.arguments import parser
from bowstring.cli.terminal import INTERRUPTED, USAGE, report, terminable
from bowstring.errors import BowstringError, MissingDependency

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# Programs that an installation need not have.
_PROGRAMS = ("bowstring.benchmarks", "bowstring.demo")
_COMMANDS = {
    "bench": "bowstring.benchmarks",
    "completion": "bowstring.cli.completion",
    "demo": "bowstring.demo",
    "depot": "bowstring.cli.depot",
    "serve": "bowstring.cli.serve",
    "fetch": "bowstring.cli.fetch",
    "inspect": "bowstring.cli.inspection",
    "list": "bowstring.cli.listing",
    "doctor": "bowstring.cli.doctor",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    Parameters
    ----------
    arguments
        Those of the command line by default.

    Returns
    -------
    int
        0 where all went well, 1 where it did not, 2 where arguments are wrong, 130 after Ctrl-C.

    Examples
    --------
    >>> main(["--version"])
    bowstring 0.1.0
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # The benchmarks parse what is theirs.
        if given[:1] == ["bench"]:
            return _run(argparse.Namespace(command="bench", rest=given[1:]))
        parsed = parser().parse_args(given)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    try:
        with terminable():
            try:
                command: Any = importlib.import_module(_COMMANDS[parsed.command])
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith(_PROGRAMS):
                    raise
                raise MissingDependency(
                    f"this installation cannot run `bowstring {parsed.command}`",
                    found=f"no module {error.name}",
                ) from error
            # The benchmarks have arguments of their own.
            code: int = command.main(parsed.rest) if parsed.command == "bench" else command.run(parsed)
            sys.stdout.flush()
            return code
    except BrokenPipeError as error:
        if isinstance(error, BowstringError):
            return report(error, parsed)
        # The reader of our output has seen enough (`bowstring fetch … | head`); the interpreter must not try again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (BowstringError, OSError) as error:
        return report(error, parsed)
    except KeyboardInterrupt:
        return INTERRUPTED
