"""Together: many batches of one run are checked and made at once.

Most of what a small batch costs is the price of a call, not of its bytes. Only what is surely right is taken; any
other batch, and whatever is wrong with one, is left to be made and judged by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionaries
from bowstring.dissociated.messages import PREFIX_BYTES
from bowstring.ipc.body.check_bulk import leading
from bowstring.ipc.body.readahead import plain_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import MessageTemplate
    from bowstring.ipc.dictionary.reader import DictionaryMemo
    from bowstring.reading.runs import Run

__all__ = ["Together"]

# Up to here, one by one costs less than arrays of all.
_FEW: Final = 2


class _Known(NamedTuple):
    """The metadata of a batch that was right, and what it says; spans are those of a body at 0."""

    metadata: bytes
    body: int
    num_rows: int
    nodes: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    variadic_counts: tuple[int, ...]
    nbytes: int


class Together:
    """Makes the batches of one stream, run by run.

    Parameters
    ----------
    layout, memo
        Of the stream.
    """

    def __init__(self, layout: Layout, memo: DictionaryMemo) -> None:
        self._layout = layout
        self._memo = memo
        self._known: _Known | None = None

    def batches(self, run: Run, template: MessageTemplate) -> tuple[list[Batch], list[int]]:
        """Return the first batches of a run, as far as they are surely right, and the bytes of each.

        Parameters
        ----------
        run
            What came, in order.
        template
            What the metadata of the last batches looked template.
        """
        if template.compression is not None or template.size != run.messages.shape[1] - PREFIX_BYTES:
            return [], []
        dictionaries = self._memo.all(self._layout) if template.fits(self._layout) else None
        if dictionaries is None:
            return [], []
        count = len(run.tags)
        known = self._known if self._known is not None and self._known.body == run.body else None
        if known is not None and run.metadata is not None and run.metadata == known.metadata:
            return self._same(run, known, dictionaries), [known.nbytes] * count
        metadata = run.messages[:, PREFIX_BYTES:].tobytes()
        if known is not None and metadata == known.metadata * count:
            return self._same(run, known, dictionaries), [known.nbytes] * count
        if count <= _FEW:
            return [], []
        found = template.table(metadata, list(range(0, count * run.body, run.body)))
        found = found.first(leading(found.bodies == run.body))
        batches = plain_ahead(found, template, self._layout, run.bodies, dictionaries)
        sizes: list[int] = found.buffers[: len(batches), :, 1].sum(axis=1).tolist()
        if batches and not self._layout.offset_groups:
            self._known = self._noted(run, metadata[: template.size], batches[0], sizes[0])
        return batches, sizes

    @staticmethod
    def _noted(run: Run, metadata: bytes, batch: Batch, nbytes: int) -> _Known:
        spans = batch.spans.table.copy()
        spans[:, 1] -= run.bodies.offset
        return _Known(metadata, run.body, batch.num_rows, batch.nodes, spans, batch.variadic_counts, nbytes)

    def _same(self, run: Run, known: _Known, dictionaries: Mapping[int, Dictionary]) -> list[Batch]:
        """Return batches whose metadata is that of one before, byte for byte, and so as right as that was.

        Not where there are offsets: they are in the body.
        """
        start = run.bodies.offset
        places = np.arange(start, start + len(run.tags) * run.body, run.body)
        spans = np.empty((len(places), *known.spans.shape), np.int64)
        spans[:] = known.spans
        spans[:, :, 1] += places[:, None]
        held = Dictionaries(dictionaries)
        regions = (run.bodies.region,)
        return [
            Batch.from_parts(
                self._layout,
                known.num_rows,
                known.nodes,
                variadic_counts=known.variadic_counts,
                dictionaries=held,
                spans=table,
                regions=regions,
            )
            for table in spans
        ]
