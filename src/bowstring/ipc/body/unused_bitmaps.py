"""Validity bitmaps that mean nothing: a writer may send one where the null count is 0, with anything in it.

Arrow's readers do not look at such a bitmap. Here it is left out of the batch, so that nobody does: a slice would
count its bits, and a kernel or another library believe them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.layout import Layout

__all__ = ["leave_out_unused_bitmaps"]

_NOTHING = np.array(0)
_TRUE = 1


def leave_out_unused_bitmaps(
    spans: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    layout: Layout,
    variadic_counts: Sequence[int] = (),
) -> None:
    """Empty the bitmaps of nodes with a null count of 0, of one batch or of many; all has been checked.

    Parameters
    ----------
    spans : ndarray of int64, shape (…, buffers, 3)
        As :class:`~bowstring.columnar.spans.Spans` has them; lengths are written.
    nodes : ndarray of int64, shape (…, nodes, 2)
        Length and null count.
    layout, variadic_counts
        Of all the batches.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> layout = Layout.of(pa.schema({"a": pa.int8(), "b": pa.int8()}))
    >>> spans = np.array([(0, 0, 1), (0, 8, 3), (0, 16, 1), (0, 24, 3)])
    >>> leave_out_unused_bitmaps(spans, np.array([(3, 0), (3, 1)]), layout)
    >>> spans[:, 2].tolist()
    [0, 3, 1, 3]
    """
    lengths = spans[..., 2]
    unused = nodes[..., layout.validity_of, 1] == _NOTHING
    at = layout.validity_at
    if variadic_counts:
        at = layout.fixed_buffers(variadic_counts)[layout.validity_buffers]
    # Mostly there are none, and looking costs less than writing.
    unused &= lengths[..., at] != _NOTHING
    if _TRUE in unused.tobytes():
        lengths[..., at] *= ~unused
