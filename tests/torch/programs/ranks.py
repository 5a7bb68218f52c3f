"""One rank of two, as ``torchrun`` starts it: reads its share, trains by DDP, and says what it read."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import bowstring as bow


def main() -> None:
    """Read once with each row, and train once with equally many batches on all ranks."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    workers = int(sys.argv[2])
    options: Any = {"columns": ["n", "x", "y"], "batch_size": 64, "shuffle_buffer": 256, "seed": 3}
    dataset = bow.torch.IterableDataset(sys.argv[1], **options)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    rows = [int(n) for batch in loader for n in batch["n"]]
    model = DistributedDataParallel(torch.nn.Linear(2, 1, dtype=torch.float64))
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    trained = bow.torch.IterableDataset(sys.argv[1], **options, even=True, epochs=4)
    batches = 0
    for batch in DataLoader(trained, batch_size=None, num_workers=workers):
        steps.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
        loss.backward()
        steps.step()
        batches += 1
    weights = [float(weight) for parameter in model.parameters() for weight in parameter.flatten()]
    found = {"rank": rank, "rows": rows, "batches": batches, "loss": float(loss), "weights": weights}
    every: list[object] = [None, None]
    dist.all_gather_object(every, found)
    if rank == 0:
        print(json.dumps(every), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
