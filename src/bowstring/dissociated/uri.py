"""The former home of :mod:`bowstring.dissociated.endpoint`, which pickles and programs name."""

from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.dissociated.location import Location

__all__ = ["Dataset", "Endpoint", "Location"]
