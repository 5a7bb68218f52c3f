"""The dictionaries of a stream or a file on the reading side: which are known, and what deltas add to them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionary
from bowstring.errors import InvalidMetadata
from bowstring.ipc.dictionary.concat import GrowingValues

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bowstring.columnar.layout import Layout

    Nodes = npt.NDArray[np.int64]

__all__ = ["Arrival", "DictionaryMemo"]


class Arrival(enum.Enum):
    """What the message of a dictionary did to the values that were known before."""

    NEW = "first"
    DELTA = "added to"
    REPLACEMENT = "replaced"


class _Used(NamedTuple):
    """A dictionary as batches use it, and what it was made of: nothing where none has come."""

    dictionary: Dictionary
    values: Batch | None


class DictionaryMemo:
    """Remembers dictionaries by their id.

    Dictionaries whose values use dictionaries themselves are put together when a batch uses them, with the inner
    ones as they are then. So the inner ones may come before or after them.

    Parameters
    ----------
    layout
        Of the batches that use the dictionaries; see :meth:`expect` if it is not known yet.

    Examples
    --------
    >>> from bowstring.columnar.layout import Layout
    >>> memo = DictionaryMemo(Layout.of(pa.schema({"a": pa.dictionary(pa.int8(), pa.string())})))
    >>> list(memo.layout.dictionaries)
    [0]
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self.layout = layout
        self._values: dict[int, GrowingValues] = {}
        self._used: dict[int, _Used] = {}

    def expect(self, layout: Layout) -> None:
        """Take note of the schema, and forget the dictionaries of another one.

        Parameters
        ----------
        layout
            Of the batches that will use the dictionaries.
        """
        self.layout = layout
        self._values.clear()
        self._used.clear()

    @property
    def num_known(self) -> int:
        """How many dictionaries have come."""
        return len(self._values)

    def layout_of(self, id_: int) -> Layout:
        """Return the layout of a dictionary's values.

        Raises
        ------
        InvalidMetadata
            No field has a dictionary of this id.
        """
        layouts = {} if self.layout is None else self.layout.dictionaries
        if id_ not in layouts:
            raise InvalidMetadata("no field has a dictionary of this id", expected=list(layouts), found=id_)
        return layouts[id_]

    def take(self, id_: int, values: Batch, *, is_delta: bool) -> Arrival:
        """Remember the values of one message.

        Parameters
        ----------
        id_
            Of a field.
        values
            Of :meth:`layout_of`; the dictionaries that they use themselves are not looked at yet.
        is_delta
            Whether they are appended to those that are known.

        Raises
        ------
        InvalidMetadata
            A delta comes before what it adds to.
        """
        known = self._values.get(id_)
        if is_delta:
            if known is None:
                raise InvalidMetadata("a delta for a dictionary that was never sent", found=f"id {id_}")
            known.append(values)
            return Arrival.DELTA
        # A new object each time: batches that were read keep the one they were given.
        self._values[id_] = GrowingValues(values)
        return Arrival.NEW if known is None else Arrival.REPLACEMENT

    def complete(self, layout: Layout, nodes: Nodes) -> dict[int, Dictionary]:
        """Return the dictionaries that a batch uses.

        Dictionaries of columns that are all null may come later (Columnar.rst, Dictionary Messages): until then
        they are empty.

        Parameters
        ----------
        layout
            That of the memo, or of the values of one of its dictionaries.
        nodes : ndarray of int64, shape (nodes, 2)
            Length and null count of each node of the batch.

        Raises
        ------
        InvalidMetadata
            A column that is not all null uses a dictionary that has not come.
        """
        return self._complete(layout, nodes, {})

    def all(self, layout: Layout) -> dict[int, Dictionary] | None:
        """Return the dictionaries that any batch may use; None where one of them has not come."""
        if not self._values.keys() >= layout.dictionaries.keys():
            return None
        made: dict[Layout, Dictionary] = {}
        return {id_: self._dictionary(id_, values, made) for id_, values in layout.dictionaries.items()}

    def _complete(
        self, layout: Layout, nodes: Nodes, made: dict[Layout, Dictionary]
    ) -> dict[int, Dictionary]:
        ids = layout.dictionaries
        if not ids:
            return {}
        if not self._values.keys() >= ids.keys():
            self._refuse_missing(layout, nodes)
        return {id_: self._dictionary(id_, values, made) for id_, values in ids.items()}

    def _refuse_missing(self, layout: Layout, nodes: Nodes) -> None:
        for node, (length, nulls) in zip(layout.nodes, nodes.tolist(), strict=False):
            id_ = node.dictionary_id
            if id_ is not None and id_ not in self._values and length != nulls:
                raise InvalidMetadata(
                    "a batch uses a dictionary that has not been sent",
                    found=f"id {id_}",
                    where=".".join(node.path),
                )

    def _dictionary(self, id_: int, layout: Layout, made: dict[Layout, Dictionary]) -> Dictionary:
        """Return a dictionary as it is now; `made` are those of the same call, as each may lie in many others."""
        if layout not in made:
            made[layout] = self._made(id_, layout, made)
        return made[layout]

    def _made(self, id_: int, layout: Layout, made: dict[Layout, Dictionary]) -> Dictionary:
        growing = self._values.get(id_)
        values = None
        if growing is not None:
            values = growing.batch(self._complete(layout, growing.nodes, made))
        used = self._used.get(id_)
        # The same object for as long as nothing changes: a writer of the batches writes it once.
        if used is None or used.values is not values:
            dictionary = Dictionary(id_, _nothing(layout) if values is None else values)
            used = self._used[id_] = _Used(dictionary, values)
        return used.dictionary


def _nothing(layout: Layout) -> Batch:
    values = pa.nulls(0, layout.schema.field(0).type)
    return Batch.from_arrow(pa.RecordBatch.from_arrays([values], schema=layout.schema))
