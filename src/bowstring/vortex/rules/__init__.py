"""The rules of the encodings of Vortex, by family; importing this package registers all of them."""

from bowstring.vortex.decode import RULES
from bowstring.vortex.rules import canonical, numbers, stored, strings, structural  # noqa: F401


def encodings() -> tuple[str, ...]:
    """Return the ids of all encodings that can be decoded.

    Examples
    --------
    >>> "vortex.primitive" in encodings()
    True
    """
    return tuple(sorted(RULES))
