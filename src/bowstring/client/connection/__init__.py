"""One stream as it comes in: its connections, what they bring, and what is sent back."""

from bowstring.client.connection.connection import Connection

__all__ = ["Connection"]
