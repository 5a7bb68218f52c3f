"""Kernels of Parquet files."""
