"""Validation of batches: structure on the host, every element where the data are."""

from __future__ import annotations

from typing import Any

from bowstring.columnar.materialize import on_device
from bowstring.columnar.parts import AnyBatch, Validated
from bowstring.columnar.slice import compacted, sliced
from bowstring.errors import UsageError


def check_once(batch: AnyBatch) -> AnyBatch:
    """Check every element of a batch from elsewhere, unless that was done, and return the batch.

    What values mean is not checked: other libraries write times beyond a day and decimals with too many digits.
    """
    if batch.validated != "full":
        from bowstring.columnar.validation.structure import validate  # kernels that only this needs

        validate(batch, full=True, again=False)
    return batch


def checked_rows(batch: AnyBatch, count: int) -> AnyBatch:
    """Return the first rows of a batch, on the host: to be shown, and so checked as `check_once` does."""
    # Without what other rows have in children, these alone are checked.
    return check_once(on_device(compacted(sliced(batch, 0, min(count, batch.num_rows))), "cpu"))


def checked_choice(validate: Any) -> Validated | None:
    """Return the choice of validation; ``None`` leaves it to where the data come from."""
    if validate not in ("full", "structure", None):
        raise UsageError("no such validation", expected="'full' or 'structure'", found=repr(validate)[:80])
    return validate  # type: ignore[no-any-return]  # it is one of these
