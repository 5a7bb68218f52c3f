"""Tables under a name in the depot of this host, for programs without Spark: ``publish``, ``get`` and ``drop``."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from bowstring.client import ConnectOptions
from bowstring.client import connect as open_stream
from bowstring.depot.launch import connect
from bowstring.depot.protocol import Verb
from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import BowstringError, Unsupported, UsageError
from bowstring.memory.handle import start_time, this_process
from bowstring.server.arguments import check_name, check_seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from bowstring.columnar.parts import Validated
    from bowstring.depot.client import Depot
    from bowstring.transport.certificates import TlsConfig

_MOST_OF_NAME: Final = 60
# Of what has no owner, in seconds: it is kept until it is dropped.
_FOREVER: Final = 999_999_999.0
# After the end of an owner.
_LEASE: Final = 0.5


def data_set_id(name: str, *parts: str) -> str:
    """Return what a depot calls a data set: the beginning of the name, for people, and what is never used again."""
    return "#".join([quote(name[:_MOST_OF_NAME], safe=""), *parts])


def publish(
    name: str, data: Any, *, ttl: float | None = None, owner: int | None = None, wait_for_room: float = 30.0
) -> Dataset:
    """Copy data into the depot of this host, where they outlive this process, and give them a name.

    Any process of this user finds them by the name: :func:`get`, ``bow.connect("depot:NAME")``. They stay for `ttl`
    seconds, until the process `owner` ends, until :func:`drop`, or until the name is published again with the same
    owner (or with none, as before); else as long as the depot. Readers keep what they have. The depot is started
    where there is none, with its default budget (:class:`bowstring.depot.Options`).

    Parameters
    ----------
    name
        What to call them.
    data
        What :meth:`bowstring.Server.publish` takes: a table, a reader, a generator of batches, a data frame.
    ttl
        Seconds from now on.
    owner
        The number of a process of this host with whose end the data are freed, such as ``os.getpid()``, or
        ``os.getppid()`` in a worker of a pool.
    wait_for_room
        How long to wait where the depot is full, in seconds.

    Returns
    -------
    Dataset
        It pickles, and :func:`bowstring.connect` opens it.

    Raises
    ------
    UsageError
        They are no Arrow data, the owner is not there, or the name is another owner's that lives, or Spark's.
    OutOfBudget
        The depot has no room in time.
    Unsupported
        The depot runs in another container than the owner, and cannot watch it.

    Examples
    --------
    >>> import bowstring as bow
    >>> bow.depot.publish("flights", {"delay": [3, -1]}, ttl=3600).num_rows  # doctest: +SKIP
    2
    >>> bow.depot.get("flights")["delay"].to_pylist()  # in any process  # doctest: +SKIP
    [3, -1]
    >>> bow.depot.drop("flights")  # doctest: +SKIP
    """
    check_name(name)
    check_seconds(wait_for_room, "wait_for_room")
    ttl = None if ttl is None else min(check_seconds(ttl, "ttl"), _FOREVER)
    dataset, application = data_set_id(name, secrets.token_hex(8)), _application(owner)
    with connect() as depot:
        depot.check_name(name, application=application)
        try:
            with depot.begin(application=application, dataset=dataset, wait=wait_for_room) as attempt:
                _hold(depot, application, owner)
                attempt.write(data)
                done = attempt.commit()
            facts = {"name": name, "id": dataset, "application": application, "rows": [done.num_rows]}
            published = Dataset((done.endpoint,), attempt.schema, done.num_rows, done.nbytes, facts)
            depot.settle(dataset, published.endpoints, ttl=ttl)
            depot.announce(name, published, application=application, part=dataset, ttl=ttl)
        except BaseException:
            with contextlib.suppress(BowstringError):
                depot.release(dataset, final=True)
            raise
    return published


def _application(owner: int | None) -> str:
    if owner is None:
        return "nobody"
    started = start_time(owner)
    if started is None or isinstance(owner, bool):
        raise UsageError("the owner is not there", expected="the number of a process", found=repr(owner)[:80])
    return f"process-{owner}-{started}"


def _hold(depot: Depot, application: str, owner: int | None) -> None:
    """Let the depot keep what belongs to an owner as long as it lives, and what belongs to nobody."""
    fields: dict[str, Any] = {"application": application, "lease_seconds": _FOREVER, "unattended": True}
    if owner is not None:
        fields |= {"lease_seconds": _LEASE, "watch_pid": owner, "pid_namespace": this_process().namespace}
    watched = depot._ask(Verb.HOLD, fields)["watched"]
    if owner is not None and not watched:
        raise Unsupported(
            "the depot cannot watch the owner",
            expected="a depot of the same container, and of this version",
            found=f"process {owner}, and a depot that does not see it",
            hint="Say ttl= instead, or let BOWSTRING_DEPOT name a folder of this container.",
        )


def get(name: str, *, validate: Validated | None = None) -> pa.Table:
    """Return what a name of the depot stands for as a ``pyarrow.Table``: a view of the depot's memory.

    Parameters
    ----------
    name
        Of :func:`publish`, :func:`bowstring.spark.publish` or ``df.write``.
    validate
        As for :func:`bowstring.connect`.

    Raises
    ------
    UnknownName
        Nothing has that name, or not any more.
    BrokenError
        There is no depot.

    Examples
    --------
    >>> bow.depot.get("flights").num_rows  # doctest: +SKIP
    2
    """
    with open_stream(f"depot:{name}", options=ConnectOptions(validate=validate)) as stream:
        return stream.read_all()


def drop(name: str, *, address: str | None = None, tls: TlsConfig | None = None) -> None:
    """Free what a name stands for, on all hosts: no new readers, those that read keep what they have.

    Parameters
    ----------
    name
        Of :func:`publish`, :func:`bowstring.spark.publish` or ``df.write``.
    address
        The depot to ask (:attr:`bowstring.depot.Depot.remote_address`), where Spark's driver is on another host.
    tls
        Whom to trust, and what to show, at depots of ``tls:``: those of other hosts that hold the data, too.

    Raises
    ------
    UnknownName
        Nothing has that name.
    BrokenError
        There is no depot.

    Examples
    --------
    >>> bow.depot.drop("flights")  # doctest: +SKIP
    """
    with connect(address=address, start=False, tls=tls) as depot:
        depot.drop(name)
