"""Arrow Flight: `DoGet` of ours beside a plain Flight server, and a name asked by Flight beside one of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.peers.flight_server import fetch
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.producer import Producer

# Bytes and batches: gRPC is quickest with messages of about a megabyte, and slow with large ones.
_FULL: Final = ((256 << 20, 256), (256 << 20, 16), (256 << 20, 1))
_QUICK: Final = ((64 << 20, 16),)
_SMALL: Final = 1 << 20
_SEED: Final = 5
_BOUND: Final = 0.9
_MOST_TIMES: Final = 4


class Reader:
    """A role for a started process: takes a table, and says how long that took."""

    def fetch(self, location: str, ticket: str) -> dict[str, Any]:
        """Take it by a Flight client of pyarrow's, connection included."""
        begin = time.perf_counter()
        table = fetch(location, ticket.encode())
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "arrived": fingerprint(payload(table.to_batches()))}

    def connect(self, address: str, name: str) -> dict[str, Any]:
        """Connect by a name, and take all batches."""
        begin = time.perf_counter()
        with bow.connect(address, name) as stream:
            batches = list(stream)
            seconds = time.perf_counter() - begin
            if stream.stats.path != "unix: mapped":
                raise RuntimeError(f"another way was taken: {stream.stats.path}: {stream.stats.why}")
        return {"seconds": seconds, "arrived": fingerprint(payload([each.to_arrow() for each in batches]))}


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    with Child(Producer) as producer, Child(Reader) as reader:
        flights, address = producer.call("serve_flights")

        def way(
            way_name: str, role: Role, sent: str, nbytes: int | None, beside: str | None, **call: Any
        ) -> Way:
            def once() -> Measured:
                return Measured(sent=sent, **reader.call(**call))

            return Way(way_name, role, once, nbytes, beside)

        for size, batches in _QUICK if scale.quick else _FULL:
            offer = producer.call("offer", kind="floats", size=size, batches=batches, seed=_SEED, flight=True)
            sent, nbytes, name = offer["fingerprint"], offer["nbytes"], offer["name"]
            plain = "plain Flight server"
            ways = (
                way(
                    "bow.flight",
                    "subject",
                    sent,
                    nbytes,
                    plain,
                    method="fetch",
                    location=flights,
                    ticket=name,
                ),
                way(
                    plain, "baseline", sent, nbytes, None, method="fetch", location=offer["flight"], ticket=""
                ),
            )
            target = Target("bow.flight", "at least", _BOUND, plain)
            pieces = f"{batches} batches" if batches > 1 else "one batch"
            yield LineUp(
                f"DoGet, {size_name(size)} in {pieces}",
                ways,
                scale.rounds(21, 3),
                (target,),
                panel="DoGet",
                at={"batches": batches},
            )
        offer = producer.call("offer", kind="floats", size=_SMALL, seed=_SEED)
        sent, name, direct = offer["fingerprint"], offer["name"], "connect(unix:…)"
        ways = (
            way(
                "connect(grpc:…)", "subject", sent, None, direct, method="connect", address=flights, name=name
            ),
            way(direct, "baseline", sent, None, None, method="connect", address=address, name=name),
        )
        target = Target("connect(grpc:…)", "at most", _MOST_TIMES, direct)
        yield LineUp(f"by name, {size_name(_SMALL)} mapped", ways, scale.rounds(101, 5), (target,))


CASE: Final = Case(
    "flight",
    "DoGet beside a plain Flight server, and names by Flight",
    _line_ups,
    Explanation(
        measured=(
            "DoGet of a published table by pyarrow's Flight client, its connection included; and "
            'connect("grpc://…", name), which asks Flight where a table is and maps it.'
        ),
        baseline=(
            'A plain Flight server of pyarrow that serves the same table from memory; connect("unix:…", '
            "name)."
        ),
        floor="",
        reading=(
            "Bowstring's Flight service should cost no more than a plain one. A name asked by Flight costs "
            "one more connection, by gRPC, and then the bytes are mapped as ever."
        ),
    ),
)
