"""Dictionaries: values that many batches share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from bowstring.errors import ClosedError, InvalidBody, NotPicklable

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.column import Column
    from bowstring.memory import Lease


class Dictionary:
    """The values of a dictionary-encoded field, with a lease of their own.

    Two batches that hold the same object share the dictionary; it is sent once.
    """

    __slots__ = ("__weakref__", "_compact", "_is_compact", "id", "lease", "values")

    def __init__(self, id: int, values: Batch, lease: Lease | None = None) -> None:  # noqa: A002  the format's word
        self.id = id
        self.values = values
        self.lease = values.lease if lease is None else lease
        self._compact: Dictionary | None = None
        self._is_compact = False

    @property
    def column(self) -> Column:
        """The values."""
        return self.values[0]

    def __len__(self) -> int:
        return self.values.num_rows

    def __reduce__(self) -> NoReturn:
        raise NotPicklable("a Dictionary belongs to its process", hint="Publish the table that uses it.")

    def __repr__(self) -> str:
        return f"<Dictionary {self.id}: {len(self)} values of {self.values.schema.field(0).type}>"


class Dictionaries(dict[int, Dictionary]):
    """The dictionaries of a batch by id; asking for one that is missing raises InvalidBody."""

    __slots__ = ()

    def __missing__(self, id_: int) -> NoReturn:
        raise InvalidBody("a dictionary is missing", expected=f"id {id_}", found=f"ids {sorted(self)}")


class ReleasedDictionaries(dict[int, Dictionary]):
    """Those of a batch that was released, in another thread, too: asking for one raises ClosedError."""

    __slots__ = ()

    def __missing__(self, _: int) -> NoReturn:
        raise ClosedError("the batch was released", hint="Copy what you need before release().")


def dictionaries_of(batch: Batch) -> Iterator[tuple[str, Dictionary]]:
    """Yield the dictionaries that a batch reaches, outer ones first, each with the path of a field that uses it.

    Dictionaries inside the values of another are those of its values. One that is missing is left out.
    """
    seen: set[int] = set()
    waiting: list[tuple[Batch, tuple[str, ...]]] = [(batch, ())]
    for reached, before in waiting:
        for node in reached.layout.nodes:
            dictionary = None if node.dictionary_id is None else reached.dictionaries.get(node.dictionary_id)
            if dictionary is not None and id(dictionary) not in seen:
                seen.add(id(dictionary))
                # The one column of a dictionary's values has a name of no meaning.
                inside = (*before, *node.path[bool(before) :], "dictionary")
                waiting.append((dictionary.values, inside))
                yield ".".join(inside), dictionary
