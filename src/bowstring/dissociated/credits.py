"""Credits: how many bytes a producer may have under way before its reader gives some back.

Only what costs the producer something new is charged: packed bodies, and batches produced for this reader.
Resident data and dictionaries are there anyway. One message may always go when nothing is outstanding, so no
batch is too large for a window.
"""

from __future__ import annotations

from bowstring.errors import ProtocolError

__all__ = ["Window"]


class Window:
    """The producer's account of one reader's credit, in bytes.

    Parameters
    ----------
    size
        Bytes that may be outstanding; ``None`` for a peer that knows no credits.

    Examples
    --------
    >>> window = Window(100)
    >>> window.charge(80), window.allows(30), window.allows(20)
    (None, False, True)
    >>> window.give_back(80), window.allows(1000)
    (None, True)
    """

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.outstanding = 0

    def allows(self, nbytes: int) -> bool:
        """Whether a message of `nbytes` may go now."""
        return self.outstanding == 0 or self.has_room(nbytes)

    def has_room(self, nbytes: int) -> bool:
        """Whether `nbytes` more would not exceed the window, however many messages they are."""
        return self.size is None or self.outstanding + nbytes <= self.size

    def charge(self, nbytes: int) -> None:
        """Count a message that goes."""
        if self.size is not None:
            self.outstanding += nbytes

    def give_back(self, nbytes: int) -> None:
        """Count bytes that the reader is done with.

        Raises
        ------
        ProtocolError
            The reader gives back more than it has.
        """
        if nbytes > self.outstanding:
            raise ProtocolError(
                "a reader gives back credit that it does not have", expected=self.outstanding, found=nbytes
            )
        self.outstanding -= nbytes

    def enlarge(self, nbytes: int) -> None:
        """Let `nbytes` more be outstanding."""
        if self.size is not None:
            self.size += nbytes

    def __repr__(self) -> str:
        return f"<Window {self.outstanding} of {self.size} bytes outstanding>"
