"""The options of ``format("bowstring")`` for reading: which endpoints, which columns."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Final, Self

import pyarrow as pa

from bowstring.client import connect
from bowstring.client.stream import chosen_columns
from bowstring.columnar.validation import Validated, checked_choice
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import UsageError, did_you_mean

__all__ = ["ReadOptions", "known_options"]

_SOURCES: Final = ("path", "uri", "url", "dataset", "name")
_OTHERS: Final = (
    "ticket",
    "depot",
    "columns",
    "truncate",
    "pushfilters",
    "maxendpointspertrigger",
    "validate",
)
# What Spark adds by itself.
_SPARKS: Final = frozenset(("checkpointlocation", "queryname"))


def known_options(options: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return options by their names in lower case.

    Raises
    ------
    UsageError
        One of them is not known.

    Examples
    --------
    >>> known_options({"Name": "trips"}, ["name", "readers"])
    {'name': 'trips'}
    """
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS}
    unknown = sorted(set(given) - set(known))
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
    """What ``spark.read.format("bowstring")`` was told.

    Attributes
    ----------
    uris
        What endpoints print, one for each line of the option ``path`` (what ``load`` is given; without a colon it
        is the name), ``uri`` or ``url``. Only the last one's value is hidden in Spark's plans
        (``spark.sql.redaction.options.regex``).
    ticket
        The data set, where the one URI does not say it.
    dataset
        A data set as ``Dataset.to_json`` writes it.
    name
        The name under which a depot announces a data set.
    depot
        Which depot; that of this host by default.
    columns
        The columns wanted, as a list in JSON or between commas; None for all.
    truncate
        Whether nanoseconds are cut to microseconds.
    push
        Whether filters are taken from Spark.
    most
        How many endpoints a stream takes at once; None for all.
    validate
        What is checked of batches; only their structure by default, also between hosts.
    """

    uris: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    ticket: str | None = None
    dataset: str | None = dataclasses.field(default=None, repr=False)
    name: str | None = None
    depot: str | None = dataclasses.field(default=None, repr=False)
    columns: tuple[str, ...] | None = None
    truncate: bool = False
    push: bool = False
    most: int | None = None
    validate: Validated = "structure"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read the options.

        Raises
        ------
        UsageError
            An option is not known or wrong, or it is not one source that they name.

        Examples
        --------
        >>> ReadOptions.of({"name": "trips", "columns": "id, fare"}).columns
        ('id', 'fare')
        """
        given = known_options(options, (*_SOURCES, *_OTHERS))
        path = given.get("path")
        if path and ":" not in path:
            # What has no colon is no URI, but a name.
            del given["path"]
            given["name"] = given.get("name") or path
        sources = [name for name in _SOURCES if given.get(name)]
        if len(sources) != 1:
            raise UsageError(
                "which data set?",
                expected="one of load(name), load(uri) and the options uri, url, dataset, name",
                found=", ".join(sources) or "none",
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
            _truth("truncate", given.get("truncate", "false")),
            _truth("pushFilters", given.get("pushfilters", "false")),
            _count(given.get("maxendpointspertrigger")),
            checked_choice(given.get("validate", "structure")) or "structure",
        )

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints there are now, in order.

        Raises
        ------
        UsageError
            A URI is not one of an endpoint.
        UnknownTicket
            The depot knows no data set of the name.
        BrokenError
            There is no depot.
        """
        if self.uris:
            return tuple(Endpoint.parse(uri, self.ticket) for uri in self.uris)
        return self._known().endpoints

    def schema(self) -> pa.Schema:
        """Return the schema of the columns wanted, asking the first endpoint where nothing else says it."""
        if self.uris:
            with connect(self.endpoints()[0], columns=self.columns) as stream:
                return stream.schema
        schema = self._known().schema
        return schema if self.columns is None else chosen_columns(schema, self.columns)

    def _known(self) -> Dataset:
        if self.dataset is not None:
            return Dataset.from_json(self.dataset)
        module: Any = importlib.import_module("bowstring.depot")
        with module.connect(address=self.depot, start=False) as depot:
            found: Dataset = depot.lookup(self.name)
            return found


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if not text.lstrip().startswith("["):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        names = json.loads(text)
    except ValueError as error:
        raise UsageError("the option columns is no list", found=text[:100]) from error
    if not all(isinstance(name, str) for name in names):
        raise UsageError("the option columns is no list of names", found=text[:100])
    return tuple(names)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"the option {name} is true or false", found=text)
    return text.lower() == "true"


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError("the option maxEndpointsPerTrigger is a number above 0", found=text)
    return int(text)
