"""GPUs that Spark gave to a task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bowstring.errors import NotOnDevice, UsageError
from bowstring.memory import device_by_name

if TYPE_CHECKING:
    from bowstring.memory import Device

__all__ = ["running_task", "task_address", "task_device"]


def running_task() -> Any:
    """Return the context of the task of Spark that calls.

    Raises
    ------
    UsageError
        This is not a task of Spark.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise UsageError("this is not a task of Spark")
    return context


def task_address(resource: str = "gpu") -> str:
    """Return the address of the resource that Spark gave to the task that calls.

    Spark says it for each task anew: a worker that is used again may get another one.

    Raises
    ------
    UsageError
        This is not a task of Spark.
    NotOnDevice
        The task was given none.
    """
    context = running_task()
    found = context.resources().get(resource)
    if found is None or not found.addresses:
        raise NotOnDevice(
            f"Spark gave this task no {resource}",
            found=", ".join(sorted(context.resources())) or "no resources at all",
            hint=f"Set spark.executor.resource.{resource}.amount and spark.task.resource.{resource}.amount, "
            "or give a resource profile.",
        )
    return str(found.addresses[0])


def task_device(kind: str = "cuda", resource: str = "gpu") -> Device:
    """Return the GPU that Spark gave to the task that calls.

    Parameters
    ----------
    kind
        ``"cuda"``; another kind of device in tests.
    resource
        What Spark calls it: ``spark.executor.resource.<resource>.amount``.

    Raises
    ------
    UsageError
        This is not a task of Spark.
    NotOnDevice
        The task was given none, or this process cannot see it.

    Examples
    --------
    >>> def train(batches):  # runs in a task: df.mapInArrow(train, …, profile=…)
    ...     device = bow.spark.task_device()
    ...     for batch in batches:
    ...         yield fit(bow.Batch.from_arrow(batch).to_device(device))
    """
    return device_by_name(f"{kind}:{_ordinal(task_address(resource))}")


def _ordinal(address: str) -> int:
    """Return the number that a GPU has in this process, of the number that it has on the host."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        if not address.isdecimal():
            raise NotOnDevice("Spark names a GPU not by its number", found=address)
        return int(address)
    # Spark does not set it, but who started the executor may have; it then renumbers what this process sees.
    names = [each.strip() for each in visible.split(",")]
    if address not in names:
        raise NotOnDevice(
            "this process does not see the GPU that Spark gave to the task",
            expected=address,
            found=f"CUDA_VISIBLE_DEVICES={visible}",
            hint="Leave CUDA_VISIBLE_DEVICES unset for executors: the task's resources say which GPU it has.",
        )
    return names.index(address)


def device_of(name: str | None) -> Any:
    """Return the device that a publication names; ``"gpu"`` is the task's own, ``None`` the host."""
    if name is None:
        return None
    return task_device() if name == "gpu" else device_by_name(name)
