"""A published data set, as the driver that published it sees it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bowstring.dissociated.uri import Dataset
from bowstring.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Control", "PublishedDataset"]


@dataclasses.dataclass(frozen=True)
class Control:
    """What the driver can do with what it published; it stays in its process.

    Attributes
    ----------
    release
        Lets go of everything.
    wait_released
        Waits, at most so many seconds, until all of it was read and freed.
    republish
        Publishes some partitions again, and returns the data set; ``None`` where Spark cannot make them again.
    """

    release: Callable[[], None]
    wait_released: Callable[[float | None], None]
    republish: Callable[[frozenset[int] | None], PublishedDataset] | None = None


@dataclasses.dataclass(frozen=True)
class PublishedDataset(Dataset):
    """A :class:`bowstring.Dataset` of :func:`bowstring.spark.publish`; elsewhere it is a plain one.

    ``metadata`` says the ``name``, the ``id`` and the ``application`` of the data set, and the ``partitions`` that
    its endpoints are.
    """

    control: Control | None = dataclasses.field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """Free the data: no new readers, those that read keep what they have. Idempotent."""
        self._control.release()

    def wait_released(self, timeout: float | None = None) -> None:
        """Wait until every stream was read to the end by its readers and freed.

        Parameters
        ----------
        timeout
            Seconds; ``Limits.release_timeout`` by default.

        Raises
        ------
        DeadlineExceeded
            Somebody still reads, or has not come.
        """
        self._control.wait_released(timeout)

    def republish(self, partitions: Iterable[int] | None = None) -> PublishedDataset:
        """Publish partitions that were lost again, from Spark; the other ones stay as they are.

        Parameters
        ----------
        partitions
            Their numbers; by default those whose depot does not offer them any more.

        Returns
        -------
        PublishedDataset
            The data set with new endpoints for these partitions.

        Raises
        ------
        UsageError
            It was not published with ``recoverable=True``.
        InvalidData
            Spark made other rows this time.
        """
        if self._control.republish is None:
            raise UsageError(
                "the data set cannot be published again",
                hint="publish(…, recoverable=True) keeps what it takes.",
            )
        return self._control.republish(None if partitions is None else frozenset(partitions))

    @property
    def _control(self) -> Control:
        if self.control is None:
            raise UsageError(
                "only the process that published a data set can do this", hint="Call it in Spark's driver."
            )
        return self.control

    def __reduce__(self) -> tuple[Any, ...]:
        # The control is of this process: whoever gets the data set gets a plain one.
        return Dataset, (self.endpoints, self.schema, self.num_rows, self.nbytes, self.metadata)
