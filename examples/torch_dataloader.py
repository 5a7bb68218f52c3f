"""A PyTorch DataLoader whose two workers each read a shard of a table: python examples/torch_dataloader.py.

The table is in memory once. Each worker gets its rows as private pages (``writable=True``), so that tensors of them
may be changed in place. Needs PyTorch: pip install torch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import bowstring as bow

ROWS = 100_000
ROWS_OF_A_BATCH = 10_000


class Shards(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The rows of a published table; worker i of n reads the i-th of n shards."""

    def __init__(self, uri: str) -> None:
        self.uri = uri  # what a worker is sent: one line of text

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield features and targets, some thousand rows at a time."""
        info = get_worker_info()
        shard = (info.id, info.num_workers) if info else (0, 1)
        with bow.connect(self.uri, shard=shard, writable=True) as stream:
            for batch in stream:
                x, y = (torch.from_dlpack(batch[name]) for name in ("x", "y"))
                x -= 0.5  # in place: the pages are private, and the published table stays as it is
                yield from zip(x.split(ROWS_OF_A_BATCH), y.split(ROWS_OF_A_BATCH), strict=True)


def main() -> None:
    """Publish a line with noise, and fit it by what two workers load."""
    random = np.random.default_rng(0)
    x = random.random(ROWS)
    table = {"x": x, "y": 3 * (x - 0.5) + 1 + random.normal(0, 0.1, ROWS)}
    weight, bias = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    rows = 0
    with bow.Server() as server:
        data = Shards(str(server.publish("line", table)))
        loader = DataLoader(
            data, batch_size=None, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
        )
        for _ in range(20):
            for features, target in loader:
                rows += len(features)
                error = weight * features + bias - target
                weight, bias = weight - (error * features).mean() * 2, bias - error.mean() * 0.5
    print(f"{rows:,} rows in 20 rounds; y = {weight:.1f} (x - 0.5) + {bias:.1f}")


if __name__ == "__main__":
    main()
