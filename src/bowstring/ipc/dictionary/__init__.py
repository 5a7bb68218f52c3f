"""Dictionaries of streams and files: read, joined with their deltas, and written."""
