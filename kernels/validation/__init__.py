"""Kernels that check every element of a column: text, views, nested offsets, and values."""
