"""The server: publishes data sets to readers in other processes."""

from bowstring.server.server import Server, ServerStatistics

__all__ = ["Server", "ServerStatistics"]
