"""A table read over TCP by address, name and token, as from another machine: python examples/over_tcp.py.

On loopback a token is optional; readers on other machines always need one. Off loopback use ``tls://`` and a
certificate (``bow.TlsConfig``), or say ``plaintext=True`` in a network that you trust.
"""

from __future__ import annotations

import secrets
from multiprocessing import get_context

import numpy as np

import bowstring as bow


def read(address: str, token: str) -> None:
    """List what the server offers, and read one column of it."""
    for found in bow.list_datasets(address, token=token):
        print(f"{found.name}: {found.num_rows:,} rows, columns {found.schema.names}")
    with bow.connect(address, "trips", token=token, columns=["fare"]) as stream:
        total = sum(float(batch["fare"].to_numpy().sum()) for batch in stream)
        print(f"total {total:,.1f} over {stream.stats.path}")


def guess(address: str) -> None:
    """Try to read without the token."""
    try:
        bow.connect(address, "trips", token="a guess")  # noqa: S106  which is the point
    except bow.AccessDenied as error:
        print(f"without the token: {error.what}")


def main() -> None:
    """Serve a table over TCP, and let another process read it."""
    token = secrets.token_urlsafe()
    trips = {"trip": np.arange(1_000_000), "fare": np.arange(1_000_000) % 100 / 2}
    with bow.Server("tcp://127.0.0.1:0", token=token) as server:  # port 0 picks a free one
        server.publish("trips", trips)
        processes = get_context("spawn")
        for target, arguments in ((read, (server.address, token)), (guess, (server.address,))):
            reader = processes.Process(target=target, args=arguments)
            reader.start()
            reader.join()


if __name__ == "__main__":
    main()
