"""Data sets by the names under which Spark wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring import depot

if TYPE_CHECKING:
    from bowstring.dissociated.endpoint import Dataset

__all__ = ["dataset"]


def dataset(name: str, *, address: str | None = None) -> Dataset:
    """Return the data set that was written under a name: ``df.write.format("bowstring").option("name", …)``.

    One that a streaming query writes grows: ask again, and take the endpoints behind those that you know.

    Parameters
    ----------
    name
        What it was called.
    address
        The depot to ask (:attr:`bowstring.depot.Depot.remote_address`), where Spark's driver is on another host.

    Raises
    ------
    UnknownTicket
        Nothing has that name, or its application has ended.
    BrokenError
        There is no depot.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, bowstring as bow
    >>> with tempfile.TemporaryDirectory() as folder, bow.depot.connect(folder=folder) as depot:
    ...     depot.announce("none", bow.Dataset((), pa.schema([("a", pa.int8())])), application="app")
    ...     found = bow.spark.dataset("none", address=depot.address)
    ...     depot.stop()
    True
    >>> found.schema.names
    ['a']
    """
    with depot.connect(address=address, start=False) as catalog:
        return catalog.lookup(name)
