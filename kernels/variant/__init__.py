"""Kernels for Parquet Variant's binary encoding: walk to a path, read, compare, validate."""
