"""Reading for ``format("bowstring")``: its options, which endpoints they mean, and the batches of one."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from bowstring.client import ConnectOptions, connect, list_datasets
from bowstring.client.grouping import by_process
from bowstring.client.names import is_depot
from bowstring.client.stream import chosen_columns
from bowstring.columnar.parts import Validated
from bowstring.columnar.validation import checked_choice
from bowstring.dissociated.endpoint import Dataset, Endpoint, is_flight
from bowstring.errors import UnknownTicket, Unsupported, UsageError, did_you_mean
from bowstring.spark.batches import Normaliser
from bowstring.spark.offsets import Listing

if TYPE_CHECKING:
    from bowstring.depot.client import Depot

_SOURCES: Final = ("path", "uri", "url", "dataset", "name")
_OTHERS: Final = (
    "ticket", "depot", "columns", "truncate", "maxendpointspertrigger", "onreplace", "validate"
)  # fmt: skip
# A server's ticket of one version, behind the name; any other is a name.
_OF_VERSION: Final = re.compile(rb"#[0-9a-f]{16}$")
# Tasks for each core, and how many bytes one reads of several endpoints at most.
_WAVES: Final = 2
_PART_BYTES: Final = 32 << 20
# What Spark adds by itself.
_SPARKS: Final = frozenset(("checkpointlocation", "queryname"))


NO_TABLES: Final = (
    "Spark keeps no options of tables of Python data sources, so saveAsTable and CREATE TABLE have no name to "
    "read: use save(name), load(name), or CREATE TEMPORARY VIEW … USING bowstring OPTIONS (name '…')."
)


def known_options(options: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return options by their names in lower case."""
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS}
    unknown = sorted(set(given) - set(known))
    if "provider" in unknown:  # which the catalog adds, and hides all others
        raise Unsupported("a table in Spark's catalog", hint=NO_TABLES)
    if unknown:
        raise UsageError(
            'format("bowstring") has no such option',
            expected=f"some of {', '.join(sorted(known))}",
            found=", ".join(unknown),
            hint=did_you_mean(unknown[0], known),
        )
    return given


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """What ``spark.read.format("bowstring")`` was told."""

    # What endpoints print, one for each line of the options ``path``, ``uri`` or ``url``. Only the last one's value
    # is hidden in Spark's plans (``spark.sql.redaction.options.regex``).
    uris: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    ticket: str | None = None  # where the one URI does not say it
    dataset: str | None = dataclasses.field(default=None, repr=False)  # as ``Dataset.to_json`` writes it
    name: str | None = None
    depot: str | None = dataclasses.field(default=None, repr=False)  # that of this host by default
    columns: tuple[str, ...] | None = None
    truncate: bool = False
    most: int | None = None  # how many endpoints a stream takes at once
    reread: bool = False  # a data set that replaced the one that a stream has read
    validate: Validated = "structure"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read the options."""
        given = known_options(options, (*_SOURCES, *_OTHERS))
        for option in ("path", "uri", "url"):
            text = given.get(option, "")
            # What has no colon is no URI, but a name.
            if is_depot(text) or (option == "path" and text and ":" not in text):
                given["name"] = given.get("name") or text.removeprefix("depot:")
                del given[option]
        sources = [name for name in _SOURCES if given.get(name)]
        if len(sources) != 1:
            raise UsageError(
                "which data set?",
                expected="one of load(name), load(uri) and the options uri, url, dataset, name",
                found=", ".join(sources) or "none",
                hint=None if sources else NO_TABLES,
            )
        text = next((given[name] for name in ("path", "uri", "url") if given.get(name)), "")
        uris = tuple(text.split())
        if "ticket" in given and len(uris) != 1:
            raise UsageError("a ticket belongs to one URI", found=f"{len(uris)} URIs")
        return cls(
            uris,
            given.get("ticket"),
            given.get("dataset"),
            given.get("name"),
            given.get("depot"),
            _columns(given.get("columns")),
            _choice("truncate", given.get("truncate", "false"), ("true", "false")) == "true",
            _count(given.get("maxendpointspertrigger")),
            _choice("onReplace", given.get("onreplace", "error"), ("error", "read")) == "read",
            checked_choice(given.get("validate", "structure")) or "structure",
        )

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints there are now, in order."""
        if self.uris:
            return tuple(Endpoint.parse(uri, self.ticket) for uri in self.uris)
        return self._known().endpoints

    def parts(self) -> list[Endpoint | Dataset]:
        """Return what tasks read, in the order of the rows: endpoints, or several neighbours.

        They are joined where there are more than two for each core of this host and serving process, up to 32 MiB.
        """
        if self.uris:
            return list(self.endpoints())
        dataset, least = self._known(), _WAVES * len(os.sched_getaffinity(0))
        endpoints = dataset.endpoints
        if dataset.nbytes is None:
            return list(endpoints)
        count = min(len(endpoints), max(least * len(by_process(dataset)), -(-dataset.nbytes // _PART_BYTES)))
        bounds = [len(endpoints) * index // count for index in range(count + 1)] if count else []
        return [
            endpoints[first] if last - first == 1 else Dataset(endpoints[first:last], dataset.schema)
            for first, last in itertools.pairwise(bounds)
        ]

    def listing(self, first: int = 0, last: int = 0) -> Listing:
        """Return the endpoints there are now, for a stream: each of one version, also where a URI has a name.

        Of a name of the depot, those from one position to another, and how many there are.
        """
        if self.name is None:
            return Listing(_of_versions(self.endpoints()))
        with self._depot() as depot:
            position, dataset, _ = depot._lookup(self.name, first, last)
        return Listing(dataset.endpoints, position, f"the data set {self.name!r}")

    def schema(self) -> pa.Schema:
        """Return the schema of the columns wanted, asking the first endpoint where nothing else says it."""
        if self.uris:
            with connect(self.endpoints()[0], columns=self.columns) as stream:
                return stream.schema
        schema = self._known().schema
        return schema if self.columns is None else chosen_columns(schema, self.columns)

    def read(self, source: Endpoint | Dataset, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one endpoint, or of several in order, in the schema that Spark expects."""
        return read_endpoint(
            source, target, columns=self.columns, truncate=self.truncate, validate=self.validate
        )

    def _known(self) -> Dataset:
        if self.dataset is not None:
            return Dataset.from_json(self.dataset)
        with self._depot() as depot:
            return depot.lookup(self.name or "")

    def _depot(self) -> Depot:
        from bowstring.depot import connect as find  # most tasks that read need no depot

        return find(address=self.depot, start=False)


def _of_versions(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """Return endpoints whose tickets are names with those of the versions that the names stand for now."""
    listed: dict[str, dict[bytes, bytes] | None] = {}
    versions = []
    for endpoint in endpoints:
        tickets = None
        if not (_OF_VERSION.search(endpoint.ticket) or is_flight(endpoint.uri)):
            if endpoint.uri not in listed:
                listed[endpoint.uri] = None
                # What has no list, such as a server of the plain protocol, is known by the ticket alone.
                with contextlib.suppress(Unsupported):
                    infos = list_datasets(str(endpoint))
                    listed[endpoint.uri] = {each.name.encode(): each.ticket for each in infos}
            tickets = listed[endpoint.uri]
        if tickets is not None:
            if endpoint.ticket not in tickets:
                found = repr(endpoint.ticket[:80])
                raise UnknownTicket("no data set of that name is offered any more", found=found)
            endpoint = dataclasses.replace(endpoint, ticket=tickets[endpoint.ticket])  # noqa: PLW2901
        versions.append(endpoint)
    return tuple(versions)


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if not text.lstrip().startswith("["):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the option columns is no list", found=text[:100]) from error
    if not all(isinstance(name, str) for name in names):
        raise UsageError("the option columns is no list of names", found=text[:100])
    return tuple(names)


def _choice(name: str, text: str, choices: tuple[str, str]) -> str:
    if text.lower() not in choices:
        raise UsageError(f"the option {name} is {' or '.join(choices)}", found=text)
    return text.lower()


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError("the option maxEndpointsPerTrigger is a number above 0", found=text)
    return int(text)


_OTHER: Final = "Read the data set anew: its schema is not the one that the data frame was made with."


def read_endpoint(
    source: Endpoint | Dataset,
    target: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    truncate: bool = False,
    validate: Validated = "structure",
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of an endpoint, or of several, as Spark takes them; a batch without rows is left out.

    `target` has some of its columns, by their names in any case, in Spark's order.
    """
    with connect(source, columns=columns, options=ConnectOptions(validate=validate)) as stream:
        # Not by a second connection: it would count as another reader, and what is made as it is read is read once.
        schema, pruned = stream.schema, _pruned(stream.schema.names, target.names)
        if pruned is not None:
            schema = pa.schema([schema.field(name) for name in pruned])
        normaliser = Normaliser(schema, truncate=truncate)
        _check(distinct_names(normaliser.schema), target)
        for batch in stream:
            for part in normaliser.batches(batch if pruned is None else batch.select(pruned)):
                if part.num_rows:
                    # Spark compares schemas, where columns may be nullable that have no nulls.
                    arrays = part.columns
                    yield pa.RecordBatch.from_arrays(arrays, schema=target) if arrays else part


def _pruned(there: list[str], wanted: list[str]) -> list[str] | None:
    """Return what columns are called that Spark wants; None where they are all, in order, or one is not there."""
    if there == wanted or not wanted or len(set(there)) < len(there):
        return None
    by_case: dict[str, list[str]] = {}
    for name in there:
        by_case.setdefault(name.lower(), []).append(name)
    columns = [[name] if name in there else by_case.get(name.lower(), []) for name in wanted]
    names = {each[0] for each in columns if len(each) == 1}
    return [each[0] for each in columns] if len(names) == len(columns) else None


def distinct_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose repeated names have their position behind them: Spark reads no names twice."""
    taken, fields = set(schema.names), []
    seen: set[str] = set()
    for index, field in enumerate(schema):
        name = field.name
        if name in seen:
            name = f"{name}_{index}"
            while name in taken:
                name += "_"
            taken.add(name)
        seen.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields, metadata=schema.metadata)


def _check(found: pa.Schema, target: pa.Schema) -> None:
    same = len(found) == len(target) and all(
        ours.name.lower() == theirs.name.lower()
        and ours.type == theirs.type
        and (theirs.nullable or not ours.nullable)
        for ours, theirs in zip(found, target, strict=True)
    )
    if not same:
        raise UsageError("the data set has another schema", expected=target, found=found, hint=_OTHER)
