"""The encodings of Vortex, by family; importing this package registers all of them."""

from bowstring.vortex.encodings import canonical, numbers, stored, strings, structural

__all__ = ["canonical", "numbers", "stored", "strings", "structural"]
