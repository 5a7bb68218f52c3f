"""Conversions to pandas, polars and Python, which batches, columns and streams share: those of pyarrow."""

from __future__ import annotations

import abc
import importlib
from typing import Any

from bowstring.columnar.interchange.polars import polars_frame
from bowstring.errors import MissingDependency


class Converting(abc.ABC):
    """Converts by way of pyarrow; data of a device are copied to the host."""

    __slots__ = ()

    @abc.abstractmethod
    def _as_pyarrow(self) -> Any:
        """Return the data as a table, a batch or an array of pyarrow's, extension types included."""

    def to_pandas(self, **options: Any) -> Any:
        """Return a ``pandas.DataFrame``, or of a column a ``pandas.Series``.

        Parameters
        ----------
        **options
            Those of pyarrow's ``to_pandas``.

        Raises
        ------
        MissingDependency
            pandas is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_pandas()["a"].sum()
        np.int64(3)
        """
        needed("pandas")
        return self._as_pyarrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``, or of a column a ``polars.Series``, without a copy where polars can.

        Runs and views of lists are decoded. Timestamps whose zone is an offset that polars has no zone for, such as
        ``+05:30``, are the same instants in UTC; seconds become milliseconds, and decimals those of 128 bits.

        Raises
        ------
        Unsupported
            polars has no type for a column (unions, intervals, decimals of more than 38 digits, unknown time
            zones), or its type cannot hold a value; the message names the column.
        LimitExceeded
            A column cannot be decoded in the memory that there is.
        MissingDependency
            polars is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_polars().shape
        (2, 1)
        """
        return polars_frame(self._as_pyarrow(), needed("polars"))

    def to_pylist(self) -> list[Any]:
        """Return the rows as Python objects: of a batch a dict each, of a column its values.

        Examples
        --------
        >>> from bowstring import Batch
        >>> batch = Batch.from_arrow({"a": [1, None]})
        >>> batch.to_pylist(), batch["a"].to_pylist()
        ([{'a': 1}, {'a': None}], [1, None])
        """
        result: list[Any] = self._as_pyarrow().to_pylist()
        return result


def needed(name: str, method: str = "", package: str = "") -> Any:
    """Import the module that a method needs, ``to_name()`` by default, or name the package to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"{method or f'to_{name}'}() needs {name.partition('.')[0]}"
        raise MissingDependency(what, hint=f"pip install {package or name}") from error
