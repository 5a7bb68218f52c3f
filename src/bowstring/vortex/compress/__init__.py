"""Encodings chosen by size, for a writer: each file holds those of one kind of values."""

from bowstring.vortex.compress.tree import compressed

__all__ = ["compressed"]
