"""A relay between a reader and its producer, that cuts the connection where a test wants it."""

from __future__ import annotations

import threading
from typing import Final, Self

from bowstring.errors import BowstringError
from bowstring.transport import Channel, Message, dial, listen
from bowstring.transport.descriptors import close_all
from bowstring.transport.framing import Run
from tests.peer.wire import Frame
from tests.transport.certified import shown_at

_WAIT: Final = 20.0


class Relay:
    """Carries the messages of one connection, up to a bound.

    Parameters
    ----------
    uri
        The producer.
    down, up
        How many messages of the producer and of the reader pass before both connections are cut; all by default.
    half
        Whether half of the next message passes, too.
    """

    def __init__(self, uri: str, *, down: int = -1, up: int = -1, half: bool = False) -> None:
        self._address, _, self._query = uri.partition("?")
        scheme = self._address.partition(":")[0]
        address = f"{scheme}://127.0.0.1:0" if scheme in ("tcp", "tls") else f"{scheme}:"
        self._listener = listen(address, tls=shown_at(address))
        self._down, self._up, self._half = down, up, half
        self.passed_down = self.passed_up = 0
        self._threads = [threading.Thread(target=self._carry, daemon=True)]
        self._threads[0].start()

    @property
    def uri(self) -> str:
        """What the reader connects to."""
        return f"{self._listener.uri}?{self._query}"

    def _carry(self) -> None:
        reader = self._listener.accept(_WAIT)
        assert reader is not None
        with reader, dial(self._address) as producer:
            back = threading.Thread(target=self._back, args=(reader, producer), daemon=True)
            back.start()
            self.passed_down = self._pump(producer, reader, self._down)
            reader.close()
            producer.close()
            back.join(_WAIT)
            assert not back.is_alive()

    def _back(self, reader: Channel, producer: Channel) -> None:
        self.passed_up = self._pump(reader, producer, self._up)
        reader.close()
        producer.close()

    def _pump(self, source: Channel, target: Channel, most: int) -> int:
        """Pass messages on until there are `most` of them, or an end; return how many passed."""
        passed = 0
        try:
            while passed != most:
                received = source.receive(_WAIT)
                if received is None:
                    return passed
                try:
                    target.send([Message(received.tag, [received.body], received.attachments)], _WAIT)
                finally:
                    close_all(received.attachments)
                passed += 1
            if self._half and (received := source.receive(_WAIT)) is not None:
                close_all(received.attachments)
                message = Frame.of(received.tag, bytes(received.body)).data
                half = message[: len(message) // 2]
                target.send_runs([Run([half], len(half))], _WAIT)  # type: ignore[attr-defined]
        except (BowstringError, OSError):
            pass
        return passed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(_WAIT)
            assert not thread.is_alive()
        self._listener.close()
