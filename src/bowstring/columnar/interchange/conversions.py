"""Conversions to pandas, polars and Python, which a batch and a column share: those of pyarrow, by way of it."""

from __future__ import annotations

import abc
import importlib
from typing import Any

from bowstring.errors import MissingDependency

__all__ = ["Converting"]


class Converting(abc.ABC):
    """Converts by way of pyarrow; data of a device are copied to the host."""

    __slots__ = ()

    @abc.abstractmethod
    def _as_pyarrow(self) -> Any:
        """Return the data as a batch or an array of pyarrow's, extension types included."""

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
        _needed("pandas")
        return self._as_pyarrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``, or of a column a ``polars.Series``, without a copy where polars can.

        Raises
        ------
        MissingDependency
            polars is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_polars().shape
        (2, 1)
        """
        return _needed("polars").from_arrow(self._as_pyarrow())

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


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(f"to_{name}() needs {name}", hint=f"pip install {name}") from error
