"""Kernels of geospatial columns."""
