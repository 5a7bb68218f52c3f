"""What a depot is started with, and what it reports of itself."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import tempfile
import urllib.parse
from typing import TYPE_CHECKING, Any, Final, Self

from bowstring.errors import ProtocolError, UsageError
from bowstring.memory import default_budget
from bowstring.transport import encrypts, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.transport.certificates import TlsConfig


def _is_number(value: Any, kinds: Any, most: float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value <= most


_BYTES: Final = "a whole number of bytes", lambda value: _is_number(value, (int,), (1 << 63) - 1)
_SECONDS: Final = (
    "a finite number of seconds",
    lambda value: _is_number(value, (int, float), sys.float_info.max),
)
_KINDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "memory_budget": _BYTES,
    "disk_budget": _BYTES,
    "spill_folder": ("the path of a folder", lambda value: isinstance(value, str) and "\0" not in value),
    "lease_seconds": _SECONDS,
    "idle_seconds": _SECONDS,
    "warm_seconds": _SECONDS,
    "plaintext": ("True or False", lambda value: isinstance(value, bool)),
    "tls": ("a TlsConfig, as a depot is another process", lambda value: isinstance(value, _config())),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a depot may use, and how long it waits for whom. The process that starts it decides.

    Parameters
    ----------
    memory_budget
        The most bytes of memory for slabs; half of what the host, or the container, has by default.
    disk_budget
        The most bytes of files where there is no memory left; half of what is free in `spill_folder` by default.
    spill_folder
        Where those files are made when a client names no folder of its own; that for temporary files by default.
    lease_seconds
        How long what belongs to an application is kept after its last sign of life.
    idle_seconds
        How long a depot that holds nothing waits to be asked for something, before it ends.
    warm_seconds
        How long slabs that nobody uses are kept.
    plaintext
        Whether token and data may cross a network unencrypted: whether it may listen at ``tcp:`` off loopback.
    tls
        The certificate of a depot that listens at ``tls:``. A driver of Spark that starts depots with it trusts its
        `ca`, and shows its `cert`, where it asks depots of other hosts.

    Examples
    --------
    >>> Options.from_json(Options(memory_budget=1 << 30).to_json()).memory_budget
    1073741824
    """

    memory_budget: int | None = None
    disk_budget: int | None = None
    spill_folder: str | None = None
    lease_seconds: float = 600.0
    idle_seconds: float = 300.0
    warm_seconds: float = 60.0
    plaintext: bool = False
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected, fits = _KINDS[field.name]
            if not (value is field.default or fits(value)):
                raise UsageError(f"Options.{field.name} is {expected}", found=repr(value)[:80])

    def __setstate__(self, state: list[Any]) -> None:
        # A pickle of an earlier version has fewer fields: new ones are at the end, and keep their defaults.
        fields = dataclasses.fields(self)
        for field, value in zip(
            fields, [*state, *(each.default for each in fields[len(state) :])], strict=True
        ):
            object.__setattr__(self, field.name, value)

    def to_json(self) -> str:
        """Return the options as text."""
        fields = dataclasses.asdict(self)
        if self.tls is not None:  # a depot has a working folder of its own
            paths = fields["tls"].items()
            fields["tls"] = {name: path and os.path.abspath(path) for name, path in paths}
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the options that a text says.

        Raises
        ------
        UsageError
            It is not JSON, or has fields that options do not have, or values of other kinds.
        """
        try:
            fields = json.loads(text)
            if fields.get("tls") is not None:
                fields["tls"] = _config()(**fields["tls"])
            return cls(**fields)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(
                "these are not options of a depot",
                expected="a JSON object such as depot.Options(…).to_json() returns",
                found=str(error)[:200],
            ) from error

    @property
    def folder(self) -> str:
        """Where files go."""
        return os.path.abspath(self.spill_folder or tempfile.gettempdir())

    @property
    def memory(self) -> int:
        """The budget of memory, in bytes."""
        return default_budget() if self.memory_budget is None else self.memory_budget

    @property
    def disk(self) -> int:
        """The budget of disk, in bytes."""
        if self.disk_budget is not None:
            return self.disk_budget
        try:
            return shutil.disk_usage(self.folder).free // 2
        except OSError:
            return 0


def check_remote(options: Options, address: str) -> None:
    """Refuse an address at which a depot with some options may not listen, or which others cannot dial."""
    host = urllib.parse.urlsplit(address).hostname
    wrong = encrypts(address) != (options.tls is not None)
    if wrong or host in (None, "0.0.0.0", "::"):  # noqa: S104  refused
        raise UsageError(
            "an address for others says which of this host's it is",
            expected="tcp://host:0" if options.tls is None else "tls://host:0",
            found=repr(address),
        )
    if not (options.plaintext or options.tls is not None or is_loopback(address)):
        raise UsageError(
            "token and data of a depot would cross the network unencrypted",
            where=address,
            hint="Start depots with depot.Options(tls=bow.TlsConfig(cert=…, key=…, ca=…)), or with "
            "Options(plaintext=True), where everybody on the network may read them: in Spark by "
            "publish(…, depot_options=options) or df.write.option('depot_options', options.to_json()).",
        )


def differing(options: Options, running: str) -> dict[str, Any]:
    """Return what is asked for and is otherwise in a depot that runs, which says it as JSON: its values by name."""
    asked, found, usual = (json.loads(each) for each in (options.to_json(), running, Options().to_json()))
    return {name: found.get(name) for name in asked if asked[name] not in (usual[name], found.get(name))}


def _config() -> type[TlsConfig]:
    from bowstring.transport.certificates import TlsConfig  # and `ssl`, which few need

    return TlsConfig


@dataclasses.dataclass(frozen=True, slots=True)
class DataSetStatus:
    """One data set that a depot holds.

    Attributes
    ----------
    name, application
        What it is called, and whose it is.
    streams, attempts
        Committed streams that are offered; attempts that go on.
    num_rows, nbytes
        Of the committed streams.
    readers
        Who reads one of them now.
    held
        Bytes of memory and disk that it takes, attempts that go on included.
    waiting
        Attempts at it that wait for room.
    """

    name: str
    application: str
    streams: int
    attempts: int
    num_rows: int
    nbytes: int
    readers: int
    held: int
    waiting: int


@dataclasses.dataclass(frozen=True, slots=True)
class DepotStatus:
    """What a depot holds and does. Sizes are bytes, times are seconds.

    Attributes
    ----------
    version, pid, uptime
        Of its protocol; its process; how long it runs.
    memory_budget, memory_in_use, memory_warm
        Bytes of memory: the most there may be; what data sets and attempts hold; what is kept warm for the next
        attempts, and given back after `Options.warm_seconds`.
    disk_budget, disk_in_use, disk_warm
        The same of disk.
    warm_slabs
        How many are kept warm.
    waiting
        Tasks that wait for room.
    clients, readers
        Connections of tasks and drivers; of readers.
    applications, datasets
        Names of those that something is held for; what is held. Of very many data sets the first ones.
    memory_lost, disk_lost, lost_slabs
        Slabs that a process has mapped still which the depot lost sight of: a writer whose connection broke
        before its attempt was over, or a reader. They are lent to nobody and take room of the budget until that
        process lets them go, or ends.
    memory_data, disk_data
        Bytes of committed data in what is held. The rest (`memory_slack`, `disk_slack`) is what attempts that go on
        have borrowed, and what is lost to whole pages.
    """

    version: int
    pid: int
    uptime: float
    memory_budget: int
    memory_in_use: int
    memory_warm: int
    disk_budget: int
    disk_in_use: int
    disk_warm: int
    warm_slabs: int
    waiting: int
    clients: int
    readers: int
    applications: tuple[str, ...]
    datasets: tuple[DataSetStatus, ...]
    memory_lost: int
    disk_lost: int
    lost_slabs: int
    memory_data: int
    disk_data: int

    @property
    def memory_slack(self) -> int:
        """How many bytes of memory are held beyond committed data."""
        return self.memory_in_use - self.memory_data

    @property
    def disk_slack(self) -> int:
        """How many bytes of disk are held beyond committed data."""
        return self.disk_in_use - self.disk_data

    def to_json(self) -> dict[str, Any]:
        """Return the status as an object for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the status that a depot sent.

        Raises
        ------
        ProtocolError
            It is none.
        """
        try:
            datasets = tuple(DataSetStatus(**each) for each in fields["datasets"])
            known = fields | {"datasets": datasets, "applications": tuple(fields["applications"])}
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ProtocolError(
                "a status of the depot that cannot be read", found=repr(error)[:200]
            ) from error
