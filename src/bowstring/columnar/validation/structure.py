"""Validation of batches: counts, sizes, first and last offsets, and optionally every element."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.interchange.export import MOST_LEVELS, to_pyarrow_batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import on_device
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import BatchData, batch_parts, dictionaries_of, offset_bounds
from bowstring.columnar.validation.elements import check_elements, may_be_wrong
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
            _check_structure(each)
            _check_ends(each)
        if full:
            _check_elements(batch, parts, again=again, some_known=len(parts) <= len(values))
    if full:
        for each in (batch, *parts):
            each.validated = "full"


def _check_structure(batch: BatchData) -> None:
    """Counts and sizes: O(columns), without a look at the data."""
    layout, nodes = batch.layout, batch_parts(batch).nodes
    lengths, nulls = nodes[:, 0], nodes[:, 1]
    for node in np.flatnonzero((lengths < 0) | (nulls < -1) | (nulls > lengths)).tolist():
        _refuse(layout, node, "impossible length or null count", found=nodes[node].tolist())
    for node, each in enumerate(layout.nodes):
        if each.type.id == pa.lib.Type_NA and nulls[node] != lengths[node]:
            _refuse(layout, node, "a slot of type null is not null", f"{lengths[node]} nulls", nulls[node])
    for node in layout.columns:
        if lengths[node] != batch.num_rows:
            _refuse(layout, node, "a column has another length than its batch", batch.num_rows, lengths[node])
    factors = layout.bounding_factors
    most = int(factors.max()) if factors.size else 1
    needed = _without_overflow(lengths[layout.bounding_parents], (1 << 62) // max(most, 1)) * factors
    for position in np.flatnonzero(lengths[layout.bounded_children] < needed).tolist():
        node = int(layout.bounded_children[position])
        _refuse(layout, node, "a child is shorter than its parent needs", needed[position], lengths[node])
    for node in layout.run_ends:
        ends, values = layout.nodes[node].children
        if lengths[values] < lengths[ends] or (lengths[node] and not lengths[ends]):
            _refuse(layout, node, "too few runs, or values of runs")
    _check_sizes(batch)


def _check_sizes(batch: BatchData) -> None:
    parts = batch_parts(batch)
    layout = batch.layout
    sizes = parts.spans.table[layout.fixed_buffers(parts.variadic_counts), 2]
    needed = layout.minimum_lengths(_without_overflow(parts.nodes[:, 0], layout.longest))
    short = sizes < needed
    optional = (layout.buffer_kinds == Kind.VALIDITY) & (sizes == 0)
    short &= ~(optional & (parts.nodes[layout.buffer_nodes, 1] <= 0))
    for position in np.flatnonzero(short).tolist():
        kind = Kind(layout.buffer_kinds[position])
        node = int(layout.buffer_nodes[position])
        what = f"the {kind.name} buffer is too short"
        _refuse(layout, node, what, f"{needed[position]} bytes", f"{sizes[position]} bytes")


def _without_overflow(lengths: Any, bound: int) -> Any:
    """Return lengths as Python's integers where what is made of them would not fit 64 bits."""
    return lengths.astype(object) if lengths.size and int(lengths.max()) > bound else lengths


def _check_ends(batch: BatchData) -> None:
    """First and last offsets and run ends, with one fetch."""
    for node, first, last, bound, is_runs in offset_bounds(batch):
        if is_runs:
            if first < 1 or last < bound:
                _refuse(batch.layout, node, "run ends do not cover the column", bound, last)
        elif not 0 <= first <= last <= bound:
            expected = f"0 <= first <= last <= {bound}"
            _refuse(
                batch.layout, node, "offsets point outside what they delimit", expected, f"{first} and {last}"
            )


def _check_elements(batch: BatchData, parts: list[BatchData], *, again: bool, some_known: bool) -> None:
    """Every element of a batch and of the dictionaries among `parts`; others may be known."""
    device = batch.device
    with device.use():
        launches = device.is_host or can_launch(device.xp.empty(0))
    if not launches:
        validate(on_device(batch, "cpu"), full=True, again=again)
        return
    if not device.is_host or _kernels_are_quicker(batch, parts, some_known=some_known):
        check_elements(batch, parts, values=again)
        return
    # On the host pyarrow checks small batches sooner.
    try:
        to_pyarrow_batch(batch).validate(full=True)
    except pa.ArrowException as error:
        if not again and can_launch(_ON_HOST):  # it may be a value that leads nowhere
            check_elements(batch, parts, values=False)
            return
        _refuse_column(batch)
        raise InvalidBody("a batch is not valid", found=str(error)) from error


def _kernels_are_quicker(batch: BatchData, parts: list[BatchData], *, some_known: bool) -> bool:
    if batch.layout.depth > MOST_LEVELS:
        return True
    # Loading the compiler takes as long as pyarrow takes over a gigabyte. It would check known dictionaries again.
    least = _HUGE if not are_ready() else 0 if some_known else _LARGE
    return sum(each.nbytes for each in parts) >= least and can_launch(_ON_HOST)


def _refuse_column(batch: BatchData) -> None:
    """Raise an error for the first column that is wrong, with the row where kernels can run."""
    for name, column in zip(batch.schema.names, to_pyarrow_batch(batch).columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            if can_launch(_ON_HOST):
                check_elements(batch)  # which names the row
            raise InvalidBody("a column is not valid", found=str(error), where=name) from error


def _refuse(layout: Layout, node: int, what: str, expected: object = None, found: object = None) -> NoReturn:
    raise InvalidBody(what, expected=expected, found=found, where=".".join(layout.nodes[node].path))
