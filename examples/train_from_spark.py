"""Training in a task of Spark that has a GPU of its own, fed by the tasks that prepare the data.

python examples/train_from_spark.py

On a cluster with GPUs start Spark with spark.executor.resource.gpu.amount and so on (docker/spark-kubernetes.yaml),
and give each stage what it needs: the first one only cores, the second one a GPU for each task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.dissociated.uri import Dataset

FEATURES = ("x1", "x2", "x3")
RESULT = "step INT, loss DOUBLE, weights ARRAY<DOUBLE>, said STRING"


@dataclasses.dataclass
class Train:
    """What the training task does. Spark pickles it to the worker; a data set travels as text."""

    dataset: str
    steps: int = 60
    rate: float = 0.3

    def __call__(self, _batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fit a linear model by gradient descent; give back how the loss went."""
        device, said = device_of_task()
        rows = []
        with bow.connect(Dataset.from_json(self.dataset), device=device) as stream:
            parts = [
                (array_of([batch[name].values for name in FEATURES]), array_of([batch["y"].values])[:, 0])
                for batch in stream
            ]
        weights = parts[0][0][0] * 0  # zeros, where the features are
        for step in range(self.steps):
            loss = gradient = 0.0
            for features, target in parts:
                error = features @ weights - target
                loss = loss + (error * error).mean() / len(parts)
                gradient = gradient + features.T @ error / len(target) / len(parts)
            weights = weights - self.rate * gradient
            if step % 20 == 0 or step == self.steps - 1:
                rows.append({"step": step, "loss": float(loss), "weights": weights.tolist(), "said": said})
        schema = pa.schema(
            [
                ("step", pa.int32()),
                ("loss", pa.float64()),
                ("weights", pa.list_(pa.float64())),
                ("said", pa.string()),
            ]
        )
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def device_of_task() -> tuple[bow.Device, str]:
    """Return the GPU that Spark gave this task; without one the CPU, and a sentence that says so."""
    try:
        device = bow.spark.task_device()
    except bow.NotOnDevice as error:
        return bow.cpu(), f"on the CPU: {error}"
    return device, f"on {device.name}"


def array_of(columns: list[Any]) -> Any:
    """Return columns side by side: as a tensor of PyTorch, through DLPack, or as an array without PyTorch."""
    if find_spec("torch") is None:
        xp = np if isinstance(columns[0], np.ndarray) else __import__("cupy")
        return xp.stack(columns, axis=1)
    import torch

    return torch.stack([torch.from_dlpack(column) for column in columns], dim=1)


def main() -> None:
    """Prepare data in Spark, publish them, train on them in a task, and print how it went."""
    spark = bow.spark.session("train_from_spark", config={"spark.ui.enabled": "false"})
    prepared = (
        spark.range(200_000)
        .selectExpr("randn(1) AS x1", "randn(2) AS x2", "randn(3) AS x3", "randn(4) AS noise")
        .selectExpr("x1", "x2", "x3", "3 * x1 - 2 * x2 + 0.5 * x3 + 0.1 * noise AS y")
    )
    published = bow.spark.publish(prepared, "training")

    # One task; on a cluster with GPUs add profile=… (a ResourceProfile whose tasks have a GPU).
    losses = spark.range(0, 1, 1, 1).mapInArrow(Train(published.to_json()), RESULT).collect()
    print("trained", losses[0].said)
    for row in losses:
        print(f"step {row.step:3}: loss {row.loss:.4f}, weights {[round(each, 2) for each in row.weights]}")

    published.release()
    spark.stop()


if __name__ == "__main__":
    main()
