"""Encodings chosen by size, for a writer: each file holds those of one kind of values."""
