"""Parquet files, read and written: Variant columns keep their meaning, and a footer is read within bounds."""

from bowstring.parquet.reader import ParquetStream, read
from bowstring.parquet.schema import ColumnType, ParquetSchema, read_schema
from bowstring.parquet.writer import ParquetWriter, write

__all__ = ["ColumnType", "ParquetSchema", "ParquetStream", "ParquetWriter", "read", "read_schema", "write"]


def __dir__() -> list[str]:
    return __all__
