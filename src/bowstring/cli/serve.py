"""``bowstring serve``: publish files."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.cli.arguments import VARIABLE, tls_config, token_apart
from bowstring.cli.files import DataFile, Format, query, read_text, recognise
from bowstring.cli.terminal import number, progress, shown, size
from bowstring.errors import DeadlineExceeded, UsageError
from bowstring.server import Server
from bowstring.transport import encrypts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from bowstring.dissociated.endpoint import Endpoint

_RESIDENT_BYTES = 512 << 20
_LOOK = 0.5


def run(arguments: argparse.Namespace) -> int:
    """Publish each file as a data set, print its URI, and serve until Ctrl-C or the last of the readers."""
    if not (arguments.files or arguments.query):
        raise UsageError("nothing to serve", expected="files, or --query SQL")
    called = _names([*arguments.files, *("query" for _ in arguments.query)], arguments.name)
    files = [read_text(path) or recognise(path) for path in arguments.files]
    files += [query(text) for text in arguments.query]
    token, way = _token(arguments)
    with contextlib.ExitStack() as servers:
        server, flights = _started(arguments, token, servers)
        ways = [file.nbytes > _RESIDENT_BYTES if arguments.lazy is None else arguments.lazy for file in files]
        offered = list(zip(called, files, ways, strict=True))
        # All or none: what was printed can be read.
        endpoints = [
            server.publish(name, file.reader if lazy else _read(file), readers=arguments.readers)
            for name, file, lazy in offered
        ]
        # From the first URI on, Ctrl-C is how a server ends, and no failure.
        with contextlib.suppress(KeyboardInterrupt):
            for each, endpoint in zip(offered, endpoints, strict=True):
                printed = endpoint if way is None else endpoint.with_token(None)
                _print_one(*each, printed, way or "", flights, server.address, as_json=arguments.json)
            _wait(server, called, arguments.readers)
    return 0


def _started(
    arguments: argparse.Namespace, token: str | None, servers: contextlib.ExitStack
) -> tuple[Server, str | None]:
    """Start the server and, with ``--flight``, that of Flight; return the server and where Flight is."""
    address, tls, host = arguments.address, tls_config(arguments), arguments.advertise
    words: dict[str, Any] = {"plaintext": arguments.plaintext, "token": token}
    if arguments.flight is None:
        return servers.enter_context(Server(address, tls=tls, advertise=host, **words)), None
    from bowstring.flight import serve

    # Options of certificates and hosts are for the address that has any.
    words |= {"tls": tls if encrypts(address) else None, "advertise": host if "://" in address else None}
    server = servers.enter_context(Server(address, **words))
    flight_tls = tls if arguments.flight.startswith("grpc+tls:") else None
    flights = serve(
        server,
        arguments.flight,
        unbounded_requests=arguments.unbounded_requests,
        **{**words, "tls": flight_tls, "advertise": host},
    )
    return server, servers.enter_context(flights).uri


def _token(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """Return the token and, where it was given apart so that nobody sees it, how a reader gives it."""
    if arguments.token is not None:
        return (secrets.token_urlsafe() if arguments.token == "auto" else arguments.token), None  # noqa: S105
    token = token_apart(arguments.token_file)
    if token is None:
        return None, None
    path = arguments.token_file
    return token, f"   (with {VARIABLE})" if path is None else f" --token-file {shlex.quote(path)}"


def _read(file: DataFile) -> pa.Table:
    if file.table is not None:
        return file.table
    batches = []
    with progress(f"read {shown(os.path.basename(file.path))}", file.num_rows) as advance:
        for batch in file.reader():
            batches.append(batch)
            advance(batch.num_rows, batch.nbytes)
    return pa.Table.from_batches(batches, schema=file.schema)


def _print_one(
    name: str,
    file: DataFile,
    lazy: bool,
    endpoint: Endpoint,
    way: str,
    flights: str | None,
    address: str,
    *,
    as_json: bool,
) -> None:
    by_flight = None if flights is None else f"{flights}/{urllib.parse.quote(name, safe='')}"
    if as_json:
        facts = {
            "name": name,
            "uri": str(endpoint),
            "path": None if file.format is Format.QUERY else os.path.abspath(file.path),
            "format": file.format.value,
            "rows": file.num_rows,
            "bytes_about": file.nbytes,
            "lazy": lazy,
        }
        if by_flight is not None:
            facts["flight"] = by_flight
        print(json.dumps(facts), flush=True)
        return
    taken = "read" if file.table is None else "copied"
    how = f"{taken} as readers ask" if lazy else "in shared memory"
    rows = "" if file.num_rows is None else f"{number(file.num_rows)} row{'s' * (file.num_rows != 1)}, "
    said = f"{shown(name)}: {file.format.value}, {rows}about {size(file.nbytes)}, {how}"
    where = shlex.join(_source(endpoint, address, name))
    print(f"bowstring fetch {where}{way}  # {said}", file=sys.stderr, flush=True)
    if by_flight is not None:
        print(f"# by Arrow Flight: {by_flight}", file=sys.stderr)
    if not sys.stdout.isatty():  # for the program that reads it
        print(endpoint, flush=True)


def _source(endpoint: Endpoint, address: str, name: str) -> list[str]:
    """Return what `fetch` takes for a data set: an address and a name where these stand for it alone."""
    by_name = endpoint.ticket == name.encode() and "token=" not in address
    return [address, name] if by_name and name.isprintable() else [str(endpoint)]


def _wait(server: Server, names: Sequence[str], readers: int | None) -> None:
    if readers is None:
        server.wait()
        return
    waiting = list(names)
    while waiting:
        with contextlib.suppress(DeadlineExceeded):
            server.wait_released(waiting[0], timeout=_LOOK)
            waiting.pop(0)


def _names(paths: Sequence[str], given: Sequence[str]) -> list[str]:
    """Name each data set: as the option says, else by its file, as short as is unique."""
    if given:
        if len(given) != len(paths):
            raise UsageError("--name is given once for each file", expected=len(paths), found=len(given))
        names = list(given)
    else:
        names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
        if len(set(names)) < len(names):
            names = [os.path.basename(path) for path in paths]
        if len(set(names)) < len(names):
            names = list(paths)
    if len(set(names)) < len(names):
        raise UsageError(
            "two data sets would have one name", found=", ".join(names), hint="Give each a --name."
        )
    return names
