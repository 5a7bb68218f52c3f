"""A process that may open few files, and serves: it answers, line by line, whether it still can open some.

Called with addresses to serve at (``depot`` for a depot that listens on TCP, too), how many descriptors it may
have, and how many of them it takes itself. Says the URIs of its data sets; then, for each line that it hears,
``ok`` or what went wrong, until it hears ``end``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile

import pyarrow as pa

import bowstring as bow

ADDRESSES, LIMIT, TAKEN = sys.argv[1].split(), int(sys.argv[2]), int(sys.argv[3])
TOKEN = os.environ["TESTS_TOKEN"]
TABLE = pa.table({"n": list(range(1000))})
OPENED_AT_ONCE = 8


def published(address: str, stack: contextlib.ExitStack) -> str:
    if address == "depot":
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        depot = stack.enter_context(bow.depot.connect(folder=folder, tcp="tcp://127.0.0.1:0"))
        stack.callback(depot.stop)
        with depot.begin(application="a", dataset="a/t") as attempt:
            attempt.write(TABLE)
            endpoint = attempt.commit().endpoint
        return f"{depot.remote_address} {endpoint.elsewhere or endpoint.uri}"
    tls = bow.TlsConfig(cert=os.environ["TESTS_TLS_CERT"]) if address.startswith("tls:") else None
    server = stack.enter_context(bow.Server(address, tls=tls, token=TOKEN))
    return str(server.publish("t", TABLE))


def opened() -> str:
    try:
        with contextlib.ExitStack() as files:
            for _ in range(OPENED_AT_ONCE):
                files.enter_context(open(__file__))
    except OSError as error:
        return repr(error)
    return "ok"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    with contextlib.ExitStack() as stack:
        uris = [published(address, stack) for address in ADDRESSES]
        for _ in range(TAKEN):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        print(" ".join(uris), flush=True)
        while sys.stdin.readline().strip() != "end":
            print(opened(), flush=True)


main()
