"""``bowstring demo``: real data handed from one process to another, then through Spark and back.

A program on the public interface. The command line starts it by name; nothing else of Bowstring imports it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bowstring.benchmarks.processes.child import Child, ChildFailed
from bowstring.errors import BrokenError

if TYPE_CHECKING:
    import argparse

_SPARK_ROUNDS: Final = 3
_FLIGHTS_ROUNDS: Final = 15
_PUBLISH_SECONDS: Final = 60.0
_READ_SECONDS: Final = 300.0


def run(arguments: argparse.Namespace) -> int:
    """Run the parts that the arguments ask for; return 0 if everything was verified, else 1."""
    from bowstring.demo.flights import Reader, data_folder
    from bowstring.demo.spark import missing

    if arguments.publish:
        return _publish(arguments)
    if arguments.read is not None:
        return _show("flights", Reader().read(arguments.read, arguments.rounds or _FLIGHTS_ROUNDS), arguments)
    if arguments.spark:
        return _show("pipeline", _pipeline(arguments), arguments)
    data_folder()
    if arguments.flights:
        return _show("flights", _two_processes(arguments), arguments)
    absent = missing()
    if arguments.json:
        results: dict[str, Any] = {"flights": _two_processes(arguments), "missing": absent}
        if not absent:
            results["pipeline"] = _pipeline(arguments)
        print(json.dumps(results))
        return int(not all(part["verified"] for part in results.values() if isinstance(part, dict)))
    print("1. Two processes\n")
    code = _show("flights", _two_processes(arguments), arguments)
    print("\n2. Spark, a process without it, and back\n", flush=True)
    if absent:
        print(f"This part needs {', '.join(absent)}: pip install 'bowstring[demo]'")
        return code
    return _show("pipeline", _pipeline(arguments), arguments) or code


def _publish(arguments: argparse.Namespace) -> int:
    """Be process A until Ctrl-C."""
    from bowstring.demo.flights import Publisher

    publisher = Publisher(arguments.transport)
    try:
        uri = publisher.publish()
        print(json.dumps({"uri": uri}) if arguments.json else uri, flush=True)
        publisher.wait()
    except KeyboardInterrupt:
        pass
    finally:
        publisher.close()
    return 0


def _two_processes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start processes A and B; return what B found."""
    rounds = arguments.rounds or _FLIGHTS_ROUNDS
    try:
        with (
            Child("bowstring.demo.flights:Publisher", transport=arguments.transport) as process_a,
            Child("bowstring.demo.flights:Reader") as process_b,
        ):
            uri = process_a.call("publish", deadline=_PUBLISH_SECONDS)
            results: dict[str, Any] = process_b.call("read", deadline=_READ_SECONDS, uri=uri, rounds=rounds)
            return results
    except ChildFailed as error:
        raise BrokenError("a process of the demo failed", found=str(error).partition("\n")[0]) from error


def _pipeline(arguments: argparse.Namespace) -> dict[str, Any]:
    from bowstring.demo.pipeline import pipeline

    return pipeline(arguments.rounds or _SPARK_ROUNDS, device=arguments.device, quiet=arguments.json)


def _show(part: str, result: dict[str, Any], arguments: argparse.Namespace) -> int:
    from bowstring.demo import printing

    if arguments.json:
        print(json.dumps(result))
    elif part == "flights":
        printing.print_flights(result)
    else:
        printing.print_pipeline(result)
    return int(not result["verified"] or result.get("same_as_flight") is False)
