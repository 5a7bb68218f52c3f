"""NVML: the facts of a topology are asked one by one, and each may stay untold."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from bowstring.cli.doctor.topology import Gpu, Link, MigInstance, Pair, Topology, visible_devices

__all__ = ["read_topology"]

_T = TypeVar("_T")

# Numbers of nvml.h. Not those of the module: its NVML_P2P_CAPS_INDEX_READ is a tuple, by a comma too many.
_CAPABILITIES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
_STATUS: Final = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "IOH topology not supported",
    4: "disabled by a setting of the driver",
    5: "not supported",
    6: "unknown",
}
_ANCESTORS: Final = {
    0: "same board",
    10: "same PCIe switch",
    20: "several PCIe switches",
    30: "same host bridge",
    40: "same NUMA node",
    50: "across NUMA nodes",
}
_MODES: Final = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_ENDS: Final = {0: "gpu", 1: "cpu", 2: "switch", 255: "unknown"}
_MOST_LINKS: Final = 18
_MOST_INSTANCES: Final = 64
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read_topology(nvml: Any = None, environment: Mapping[str, str] | None = None) -> Topology:
    """Ask NVML for the GPUs of this machine. Never raises: what cannot be known is ``None``, and in `untold`.

    A broken driver may hang or crash the process that asks: ask in a child where that must not be.

    Parameters
    ----------
    nvml
        The module ``pynvml`` of ``nvidia-ml-py``; imported by default.
    environment
        Where ``CUDA_VISIBLE_DEVICES`` may be set; this process's by default.

    Examples
    --------
    >>> read_topology(nvml=object()).why_not.partition(":")[0]
    'NVML cannot be used'
    """
    try:
        # nvidia-ml-py tells nothing but how to install it where there is no driver: `nvmlInit` says so.
        module = importlib.import_module("pynvml") if nvml is None else nvml
        module.nvmlInit()
    except ImportError:
        return Topology("nvidia-ml-py is not installed")
    except Exception as error:  # noqa: BLE001  NVML's errors have no root that is there without NVML
        return Topology(f"NVML cannot be used: {_said(error)}")
    asked = _Asked(module)
    try:
        return asked.topology(os.environ if environment is None else environment)
    finally:
        asked.ask("nvmlShutdown", read=_anything)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _number(value: Any) -> int:
    # Some versions of the module return the ctypes object.
    return int(getattr(value, "value", value))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _anything(value: Any) -> Any:
    return value


class _Asked:
    """NVML, and the questions that it did not answer."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._untold: dict[str, None] = {}

    def ask(self, call: str, *arguments: Any, read: Callable[[Any], _T], quiet: bool = False) -> _T | None:
        """Return the answer to one question, ``None`` where there is none; noted, unless that is to be expected."""
        try:
            return read(getattr(self._module, call)(*arguments))
        except Exception as error:  # noqa: BLE001  as above; and an answer may be of an unknown form
            if not quiet:
                self._untold.setdefault(f"{call}: {_said(error)}")
            return None

    def topology(self, environment: Mapping[str, str]) -> Topology:
        """Ask everything."""
        count = self.ask("nvmlDeviceGetCount", read=_number) or 0
        handles = {
            index: self.ask("nvmlDeviceGetHandleByIndex", index, read=_anything) for index in range(count)
        }
        # One GPU that was lost, or that is not for us, does not hide the others.
        known = {index: handle for index, handle in handles.items() if handle is not None}
        gpus = tuple(self._gpu(index, handle) for index, handle in known.items())
        pairs = tuple(
            self._pair(first, second, known)
            for first in gpus
            for second in gpus
            if first.index != second.index
        )
        return Topology(
            None,
            self.ask("nvmlSystemGetDriverVersion", read=_text),
            self.ask("nvmlSystemGetCudaDriverVersion", read=_cuda_version),
            gpus,
            pairs,
            visible_devices(gpus, environment),
            tuple(self._untold),
        )

    def _gpu(self, index: int, handle: Any) -> Gpu:
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle, read=_total_and_used)
        mig = self.ask("nvmlDeviceGetMigMode", handle, read=lambda modes: bool(_number(modes[0])))
        return Gpu(
            index,
            self.ask("nvmlDeviceGetName", handle, read=_text),
            self.ask("nvmlDeviceGetUUID", handle, read=_text),
            self._bus("nvmlDeviceGetPciInfo", handle),
            None if memory is None else memory[0],
            None if memory is None else memory[1],
            self.ask("nvmlDeviceGetComputeMode", handle, read=lambda found: _MODES.get(_number(found))),
            self.ask("nvmlDeviceGetPersistenceMode", handle, read=lambda found: bool(_number(found))),
            mig,
            tuple(self._instances(handle)) if mig else (),
            tuple(self._links(handle)),
            self.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_LOADED, read=_number),
        )

    def _bus(self, call: str, *arguments: Any) -> str | None:
        return self.ask(call, *arguments, read=lambda found: _text(found.busId).upper())

    def _instances(self, handle: Any) -> list[MigInstance]:
        most = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle, read=_number) or 0
        found: list[MigInstance] = []
        for slot in range(min(most, _MOST_INSTANCES)):
            # An empty slot is an error to NVML, and none to us.
            each = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, read=_anything, quiet=True)
            if each is None:
                continue
            found.append(
                MigInstance(
                    slot,
                    self.ask("nvmlDeviceGetUUID", each, read=_text),
                    self.ask("nvmlDeviceGetGpuInstanceId", each, read=_number),
                    self.ask("nvmlDeviceGetComputeInstanceId", each, read=_number),
                    self.ask("nvmlDeviceGetMemoryInfo", each, read=lambda memory: _number(memory.total)),
                )
            )
        return found

    def _links(self, handle: Any) -> list[Link]:
        found: list[Link] = []
        for number in range(_MOST_LINKS):
            # A GPU without NVLink, and the first number that it does not have, are errors to NVML.
            active = self.ask("nvmlDeviceGetNvLinkState", handle, number, read=_number, quiet=True)
            if active is None:
                break
            if active:
                kind = self.ask(
                    "nvmlDeviceGetNvLinkRemoteDeviceType",
                    handle,
                    number,
                    read=lambda found: _ENDS.get(_number(found), "unknown"),
                )
                remote = self._bus("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
                found.append(Link(number, remote, kind))
        return found

    def _pair(self, first: Gpu, second: Gpu, handles: Mapping[int, Any]) -> Pair:
        both = handles[first.index], handles[second.index]
        status = {
            name: self.ask("nvmlDeviceGetP2PStatus", *both, number, read=_status)
            for name, number in _CAPABILITIES.items()
        }
        return Pair(
            first.index,
            second.index,
            **status,
            ancestor=self.ask(
                "nvmlDeviceGetTopologyCommonAncestor",
                *both,
                read=lambda found: _ANCESTORS.get(_number(found)),
            ),
            links=sum(link.remote is not None and link.remote == second.bus_id for link in first.links),
        )


def _status(value: Any) -> str:
    return _STATUS.get(_number(value), "unknown")


def _total_and_used(memory: Any) -> tuple[int, int]:
    return _number(memory.total), _number(memory.used)


def _cuda_version(value: Any) -> str:
    version = _number(value)
    return f"{version // 1000}.{version % 1000 // 10}"
