"""Compressed bodies for a GPU: one upload for each message, decompressed by nvCOMP."""
