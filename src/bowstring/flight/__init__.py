"""Arrow Flight: the data sets of a server for every Flight or ADBC client, and for Bowstring's own as ``grpc://``.

>>> import bowstring as bow
>>> with bow.Server() as server, bow.flight.serve(server, "grpc://127.0.0.1:0") as flights:
...     endpoint = server.publish("trips", {"fare": [1.5, 2.5]})
...     with bow.connect(f"{flights.uri}/trips") as stream:
...         fares = stream.read_all().column("fare").to_pylist()
>>> fares
[1.5, 2.5]
"""

from bowstring.flight.serving import FlightServer, serve

__all__ = ["FlightServer", "serve"]


def __dir__() -> list[str]:
    return __all__
