"""Validation of batches: counts, sizes, first and last offsets, and optionally every element."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.interchange.export import MOST_LEVELS, to_pyarrow_batch
from bowstring.columnar.materialize import on_device
from bowstring.columnar.parts import BatchData, batch_parts, dictionaries_of
from bowstring.columnar.validation.elements import check_elements, may_be_wrong
from bowstring.columnar.validation.rules import check_ends, check_nodes, check_sizes
from bowstring.errors import InvalidBody
from bowstring.kernels.launch import are_ready, can_launch

# Bytes from which kernels are worth their launches, and from which they are worth loading the compiler.
_LARGE: Final = 1 << 20
_HUGE: Final = 1 << 30
_ON_HOST: Final = np.empty(0)


def validate(batch: BatchData, *, full: bool, again: bool = True) -> None:
    """Check a batch: see :meth:`bowstring.columnar.batch.Batch.validate`.

    Unless `again`, as for what arrives, checked dictionaries and the meaning of values are left out.
    """
    parts, own = [], batch_parts(batch)
    bitmaps = batch.layout.fixed_buffers(own.variadic_counts)[batch.layout.validity_buffers]
    if again or may_be_wrong(batch.layout) or own.spans.table[bitmaps, 2].any():
        values = [each.values for _, each in dictionaries_of(batch)]
        parts = [batch, *(each for each in values if again or each.validated != "full")]
        for each in parts:
            layout, own = each.layout, batch_parts(each)
            nodes = own.nodes.tolist()
            check_nodes(layout, each.num_rows, nodes, InvalidBody)
            for node in layout.null_nodes.tolist():
                length, nulls = nodes[node]
                if nulls != length:
                    what, where = "a slot of type null is not null", layout.name_of(node)
                    raise InvalidBody(what, expected=f"{length} nulls", found=nulls, where=where)
            sizes = own.spans.table[layout.fixed_buffers(own.variadic_counts), 2].tolist()
            check_sizes(layout, nodes, sizes, InvalidBody)
            check_ends(each)
        if full:
            _check_elements(batch, parts, again=again, some_known=len(parts) <= len(values))
    if full:
        for each in (batch, *parts):
            each.validated = "full"


def _check_elements(batch: BatchData, parts: list[BatchData], *, again: bool, some_known: bool) -> None:
    """Every element of a batch and of the dictionaries among `parts`; others may be known."""
    device = batch.device
    with device.use():
        launches = device.is_host or can_launch(device.xp.empty(0))
    if not launches:
        validate(on_device(batch, "cpu"), full=True, again=again)
        return
    # Loading the compiler takes as long as pyarrow takes over a gigabyte. It would check known dictionaries again.
    least = _HUGE if not are_ready() else 0 if some_known else _LARGE
    is_quicker = batch.layout.depth > MOST_LEVELS or (
        sum(each.nbytes for each in parts) >= least and can_launch(_ON_HOST)
    )
    if is_quicker or not device.is_host:
        check_elements(batch, parts, values=again)
        return
    # On the host pyarrow checks small batches sooner.
    try:
        to_pyarrow_batch(batch).validate(full=True)
    except pa.ArrowException as error:
        if not again and can_launch(_ON_HOST):  # it may be a value that leads nowhere
            check_elements(batch, parts, values=False)
            return
        for name, column in zip(batch.schema.names, to_pyarrow_batch(batch).columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowException as wrong:
                if can_launch(_ON_HOST):
                    check_elements(batch)  # which names the row
                raise InvalidBody("a column is not valid", found=str(wrong), where=name) from wrong
        raise InvalidBody("a batch is not valid", found=str(error)) from error
