"""Memory: where bytes live, and how another process gets at them."""

from bowstring.memory.buffer import Buffer, wrap
from bowstring.memory.copying import Road, Stretch, carry, road_between
from bowstring.memory.cuda.ipc import EventHandle, OpenedEvent, Pending, lend, lendable, used_here
from bowstring.memory.cuda.streams import NamedStream, named_streams
from bowstring.memory.device import CPU_DEVICE_TYPE, Device, Slab, cpu
from bowstring.memory.devices import (
    device_by_id,
    device_by_name,
    find_device,
    on_streams,
    register_devices,
    settle_devices,
)
from bowstring.memory.forks import fork_sentinel, watch_forks
from bowstring.memory.handle import (
    Handle,
    KeyedHandle,
    LentHandle,
    handle_of,
    this_process,
    unpack_handle,
)
from bowstring.memory.lease import Export, Lease
from bowstring.memory.mapping import MappingCache, MappingStatistics, mappings
from bowstring.memory.pool import Allocator, Pool, PoolStatistics, default_budget, default_pool
from bowstring.memory.region import (
    Region,
    allocated_region,
    foreign_region,
    kept_for_good,
    owned_regions,
)

__all__ = [
    "CPU_DEVICE_TYPE",
    "Allocator",
    "Buffer",
    "Device",
    "EventHandle",
    "Export",
    "Handle",
    "KeyedHandle",
    "Lease",
    "LentHandle",
    "MappingCache",
    "MappingStatistics",
    "NamedStream",
    "OpenedEvent",
    "Pending",
    "Pool",
    "PoolStatistics",
    "Region",
    "Road",
    "Slab",
    "Stretch",
    "allocated_region",
    "carry",
    "cpu",
    "default_budget",
    "default_pool",
    "device_by_id",
    "device_by_name",
    "find_device",
    "foreign_region",
    "fork_sentinel",
    "handle_of",
    "kept_for_good",
    "lend",
    "lendable",
    "mappings",
    "named_streams",
    "on_streams",
    "owned_regions",
    "register_devices",
    "road_between",
    "settle_devices",
    "this_process",
    "unpack_handle",
    "used_here",
    "watch_forks",
    "wrap",
]


def __dir__() -> list[str]:
    return __all__
