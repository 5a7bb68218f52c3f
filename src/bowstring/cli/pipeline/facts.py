"""What is taken out of a place: by which path, as which type of Arrow's, and as which of Spark's."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

__all__ = ["FACTS", "Fact"]


class Fact(NamedTuple):
    """One column.

    Attributes
    ----------
    path
        Where it is in the Variant.
    arrow : pyarrow.DataType
        Its type.
    spark
        Spark's name for that type.
    """

    path: str
    arrow: Any
    spark: str


FACTS: Final = {
    "id": Fact("$.geonameid", pa.int32(), "int"),
    "name": Fact("$.name", pa.string(), "string"),
    "code": Fact("$.countrycode", pa.string(), "string"),
    "population": Fact("$.population", pa.int64(), "bigint"),
    "latitude": Fact("$.latitude", pa.decimal128(9, 5), "decimal(9,5)"),
    "longitude": Fact("$.longitude", pa.decimal128(9, 5), "decimal(9,5)"),
    "names": Fact("$.alternatenames", pa.list_(pa.string()), "array<string>"),
}
"""By the names of the columns."""
