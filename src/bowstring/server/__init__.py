"""The server: publishes data sets to readers in other processes."""

from bowstring.server.filling import EmptyTable
from bowstring.server.server import Server, ServerStatistics, catalogue_of, listen_unnamed, offer, offered

__all__ = [
    "EmptyTable",
    "Server",
    "ServerStatistics",
    "catalogue_of",
    "listen_unnamed",
    "offer",
    "offered",
]
