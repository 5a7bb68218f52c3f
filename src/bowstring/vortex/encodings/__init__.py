"""The encodings of Vortex, by family; importing this package registers all of them."""

from bowstring.vortex.encodings import (
    bitpacked,
    canonical,
    floats,
    nested,
    parts,
    runs,
    stored,
    strings,
    structural,
)

__all__ = ["bitpacked", "canonical", "floats", "nested", "parts", "runs", "stored", "strings", "structural"]
