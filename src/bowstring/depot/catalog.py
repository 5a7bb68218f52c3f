"""The catalog: data sets by a name that their user chose, for whoever knows no more than that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import UnknownTicket, UsageError

__all__ = ["Catalog"]


@dataclasses.dataclass(slots=True)
class _Entry:
    """A name, whose it is, what it means, and which micro-batches made it."""

    application: str
    dataset: Dataset
    batches: set[int | str]


class Catalog:
    """Names of data sets. The depot's holdings guard it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> catalog = Catalog()
    >>> catalog.announce("events", Dataset((), pa.schema([])), "app")
    True
    >>> len(catalog.lookup("events"))
    0
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def announce(
        self,
        name: str,
        dataset: Dataset,
        application: str,
        *,
        append: bool = False,
        batch: int | str | None = None,
        over: Callable[[str], bool] = lambda _: False,
    ) -> bool:
        """Let a name mean a data set; return whether that changed anything.

        Parameters
        ----------
        name
            What a reader asks for.
        dataset
            What it gets.
        application
            Whose it is; the name goes with it.
        append
            Whether the endpoints are added to those that the name has; the schema of a data set without endpoints
            says nothing then.
        batch
            Number of a micro-batch, or another name of what is appended; the second time nothing changes.
        over
            Whether an application is over, whose names can be taken.

        Raises
        ------
        UsageError
            The name is another application's, or the schema is another one.
        """
        known = self._entries.get(name)
        if known is not None and known.application != application and over(known.application):
            known = None
        if known is not None and known.application != application:
            raise UsageError(
                "the name is taken by another application", expected=known.application, found=application
            )
        if known is not None and append:
            if batch is not None and batch in known.batches:
                return False
            dataset = _joined(known.dataset, dataset)
        batches = known.batches if known is not None and append else set()
        self._entries[name] = _Entry(application, dataset, batches if batch is None else batches | {batch})
        return True

    def lookup(self, name: str) -> Dataset:
        """Return what a name means.

        Raises
        ------
        UnknownTicket
            Nothing.
        """
        found = self._entries.get(name)
        if found is None:
            raise UnknownTicket("the depot knows no data set of that name", found=repr(name[:80]))
        return found.dataset

    def forget_application(self, application: str) -> None:
        """Forget the names of an application."""
        self._entries = {n: e for n, e in self._entries.items() if e.application != application}

    def is_used_by(self, application: str) -> bool:
        """Whether an application has a name here."""
        return any(entry.application == application for entry in self._entries.values())

    @property
    def names(self) -> list[str]:
        """All names."""
        return sorted(self._entries)


def _joined(before: Dataset, more: Dataset) -> Dataset:
    # Where there is no row nobody has seen a batch, and its schema is a guess: of a time zone, for instance.
    if not more.endpoints:
        return before
    if not before.endpoints:
        return more
    if not before.schema.equals(more.schema):
        raise UsageError(
            "what is appended has another schema", expected=str(before.schema), found=str(more.schema)
        )

    def total(first: int | None, second: int | None) -> int | None:
        return None if first is None or second is None else first + second

    return dataclasses.replace(
        before,
        endpoints=(*before.endpoints, *more.endpoints),
        num_rows=total(before.num_rows, more.num_rows),
        nbytes=total(before.nbytes, more.nbytes),
    )
