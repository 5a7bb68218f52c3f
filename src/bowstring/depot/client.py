"""The client of a depot."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bowstring import errors
from bowstring.closing import Closing
from bowstring.depot.options import DepotStatus
from bowstring.depot.protocol import COMMITTED, REPLACED, STAY, DepotConnection, Verb, texts
from bowstring.depot.writing import Attempt, Committed, warm_mappings
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.dissociated.listing import DatasetInfo
from bowstring.dissociated.location import token_of, with_token
from bowstring.dissociated.position import Position, check_reached, checked_position, place_of
from bowstring.memory.handle import this_process
from bowstring.transport import encrypts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from bowstring.transport.certificates import TlsConfig

    Tls = TlsConfig | ssl.SSLContext

_ANSWER_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_ELSEWHERE_SECONDS: Final = 10.0


class Depot(Closing):
    """A depot, as its clients see it; from :func:`bowstring.depot.connect`. Any thread may use it."""

    def __init__(self, find: Callable[[], DepotConnection], tls: Tls | None = None) -> None:
        self._find = find
        self._tls = tls
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._finding = threading.Lock()
        self._main = find()
        self._free: DepotConnection | None = None
        # A depot that takes the place of this one gets these, too.
        self._held: dict[str, dict[str, Any]] = {}
        self._listens: tuple[str, bool | None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The depot's process; ``None`` once this is closed."""
        return None if self._closed else self._main.pid

    @property
    def address(self) -> str:
        """Where this process found it."""
        return self._main.address

    @property
    def remote_address(self) -> str | None:
        """Where those of other hosts do, with the token; ``None`` where it listens for them nowhere."""
        return self._main.remote_address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where :func:`connect` finds this very depot, with its token: by its socket, then from elsewhere.

        In another container the socket's path may lead to another depot, which is not taken for this one.
        """
        main = self._main
        addresses = (with_token(main.address, main.token), main.remote_address)
        return tuple(dict.fromkeys(each for each in addresses if each is not None))

    # Tasks.

    def begin(
        self,
        *,
        application: str,
        dataset: str,
        partition: int = 0,
        attempt: int = 0,
        schema: pa.Schema | None = None,
        readers: int | None = None,
        spill_folder: str | None = None,
        wait: float = 300.0,
    ) -> Attempt:
        """Begin to write a partition of a data set.

        Parameters
        ----------
        application
            Whose it is: what belongs to an application is freed when that ends.
        dataset
            The data set's name, of which a depot has one.
        partition, attempt
            Which part of it, and which try at that.
        schema
            The schema; that of the first batch by default.
        readers
            How many read it to its end before its memory is freed; any number by default, until it is released.
        spill_folder
            Where files are made when there is no memory left: a local folder that is there.
        wait
            How long to wait for room, in seconds.

        Raises
        ------
        RefusedError
            The depot takes no attempts any more, or the data set was released.
        UsageError
            The data set is another application's.
        """
        fields: dict[str, Any] = {
            "application": application,
            "dataset": dataset,
            "partition": partition,
            "attempt": attempt,
            "readers": readers,
            "spill_folder": spill_folder and os.path.abspath(spill_folder),
            "mapped": warm_mappings().names(),
        }
        connection, answer = self._begun(Verb.BEGIN, fields, _ANSWER_SECONDS)
        if answer["gone"]:
            warm_mappings().forget(answer["gone"])
        return Attempt(connection, self._take_back, schema, wait)

    def _begun(
        self, verb: Verb, fields: dict[str, Any], seconds: float
    ) -> tuple[DepotConnection, dict[str, Any]]:
        """Return a connection for one use, and its first answer: its loss is the end of an attempt."""
        while True:
            self._check()
            with self._lock:
                free, self._free = self._free, None
            main, connection = self._main, free or self._find()
            if free is None and connection.token != main.token:
                # Another depot has come: all requests of this client go to the same one.
                connection.close()
                self._reconnected(main)
                continue
            try:
                return connection, connection.ask(verb, fields, seconds).fields
            except BaseException as error:
                connection.close()
                # A depot that had kept a connection may have ended since; there may be another one.
                if free is None or not isinstance(error, (errors.BrokenError, errors.ClosedError)):
                    raise

    def _take_back(self, connection: DepotConnection) -> None:
        with self._lock:
            if self._free is None and not self._closed:
                self._free = connection
                return
        connection.close()

    # Drivers.

    def hold(
        self, application: str, lease_seconds: float | None = None, *, watch_pid: int | None = None
    ) -> None:
        """Keep what belongs to an application, for as long as this Depot is open.

        When it is closed, or its process or host is gone, the lease begins to run. It may be called again.

        Parameters
        ----------
        application
            Which one.
        lease_seconds
            How long everything is kept after the last sign of life; the depot's own time by default.
        watch_pid
            A process of this host: the lease does not begin to run before that is gone, too. A depot in another
            PID namespace (of another container) cannot watch it, and goes by the connection and the lease alone.
        """
        fields: dict[str, Any] = {"application": application, "lease_seconds": lease_seconds}
        if watch_pid is not None:
            fields |= {"watch_pid": watch_pid, "pid_namespace": this_process().namespace}
        self._ask(Verb.HOLD, fields)
        self._held[application] = fields

    def settle(
        self,
        dataset: str,
        endpoints: Iterable[Endpoint],
        *,
        ttl: float | None = None,
        name: str | None = None,
    ) -> int:
        """Keep these streams of a data set, and free all others of it; return how many are kept.

        Attempts that go on fail. Later ones may add streams, for another call that names those, too.

        Parameters
        ----------
        dataset, endpoints
            Its name, and the streams.
        ttl
            After how many seconds they are freed; when they are released, or the application ends, by default.
        name
            A name that grows to which they are appended: what is small shares slabs with what it has.

        Raises
        ------
        UnknownTicket
            The depot has no such data set.
        """
        tickets = [endpoint.ticket for endpoint in endpoints]
        fields = {"dataset": dataset, "tickets": tickets, "ttl": ttl, "name": name}
        return int(self._ask(Verb.SETTLE, fields)["kept"])

    def offered(self, dataset: str) -> tuple[Committed, ...]:
        """Return the committed streams of a data set that are offered still."""
        streams = self._ask(Verb.OFFERED, {"dataset": dataset})["streams"]
        return tuple(Committed.of(COMMITTED.unpack(each)) for each in streams)

    def release(self, dataset: str, *, final: bool = False) -> bool:
        """Free a data set, and return whether there was one. Readers keep what they have.

        Parameters
        ----------
        dataset
            Its name.
        final
            Whether attempts that begin later are refused, such as those of a job that was cancelled.
        """
        return bool(self._ask(Verb.RELEASE, {"dataset": dataset, "final": final})["known"])

    def wait_released(self, dataset: str, timeout: float = 3600.0) -> None:
        """Wait until a data set was read by its readers, or released.

        Raises
        ------
        DeadlineExceeded
            It was not, in `timeout` seconds.
        UnknownTicket
            There never was such a data set.
        """
        # A connection of its own: others may be asked for something meanwhile.
        fields = {"dataset": dataset, "timeout": timeout}
        connection, _ = self._begun(Verb.WAIT_RELEASED, fields, timeout + _ANSWER_SECONDS)
        self._take_back(connection)

    def end(self, application: str, *, stays: Mapping[str, float] | None = None) -> bool:
        """Free what belongs to an application; return whether the depot knew it.

        Parameters
        ----------
        application
            Which one.
        stays
            Data sets that are kept for so many seconds more, and their names with them.
        """
        self._held.pop(application, None)
        each = [STAY.pack({"name": name, "seconds": seconds}) for name, seconds in (stays or {}).items()]
        return bool(self._ask(Verb.END, {"application": application, "stays": each})["known"])

    def announce(
        self,
        name: str,
        dataset: Dataset,
        *,
        application: str,
        append: bool = False,
        batch: int | None = None,
        new: bool = False,
        part: str | None = None,
        depots: Iterable[str] = (),
        ttl: float | None = None,
        version: str | None = None,
    ) -> bool:
        """Let a name mean a data set, for :meth:`lookup`, as long as its application lasts.

        What it meant before is freed at the same moment here, and then on other hosts.

        Parameters
        ----------
        name
            What a reader asks for.
        dataset
            What it gets.
        application
            Whose it is.
        append
            Whether its endpoints are added to those that the name has.
        batch
            Number of a micro-batch: appended the second time, it changes nothing.
        new
            Whether the name must mean nothing yet.
        part
            The data set of the depots that holds the streams, by the name that :meth:`begin` was given: it is
            released with the name.
        depots
            Where depots of other hosts that hold streams of it are asked to release them.
        ttl
            After how many seconds the name is forgotten.
        version
            Where it replaces another, a text that its positions are made of: a new one by default. Data that were
            lost and computed again, in the same order, keep theirs.

        Returns
        -------
        bool
            Whether it changed anything.

        Raises
        ------
        UsageError
            The name is another application's, or taken, or what is appended has another schema.
        """
        fields: dict[str, Any] = {"name": name, "dataset": dataset.to_json(), "application": application}
        # Asked again because the connection was lost, it is the same version.
        fields |= {"version": secrets.token_hex(8) if version is None else version, "append": append}
        fields |= {"new": new, "part": part, "depots": list(depots), "ttl": ttl, "batch": batch}
        if batch is None and append:
            # Asked again because the connection was lost, it must not be added twice.
            fields["once"] = secrets.token_hex(8)
        answer = self._ask(Verb.ANNOUNCE, fields)
        self._release_elsewhere(answer)
        return bool(answer["changed"])

    def _grow(
        self,
        name: str,
        dataset: Dataset,
        application: str,
        state: str,
        number: int | None = None,
        **given: Any,
    ) -> str | None:
        """Say how it is with the job that makes a data set, and add what it made as a part.

        Of each part the first is what counts: returned is the ``note=`` that was given with that.
        """
        fields = {"name": name, "dataset": dataset.to_json(), "application": application, "append": True}
        fields |= {"version": name, "batch": number, "state": state, **given}
        first: str | None = self._ask(Verb.ANNOUNCE, fields)["note"]
        return first

    def check_name(self, name: str, *, application: str, new: bool = False) -> tuple[str, ...]:
        """Refuse a name that an application cannot :meth:`announce`, before anything is computed for it.

        Returns
        -------
        tuple of str
            The data sets that were released here with ``final=True`` last: of jobs that failed, whose tasks on
            other hosts may have left some of them there.

        Raises
        ------
        UsageError
            The name is another application's that goes on, or taken where it must be `new`.
        """
        answer = self._ask(Verb.CHECK_NAME, {"name": name, "application": application, "new": new})
        return tuple(texts("given_up", answer["given_up"]))

    def drop(self, name: str) -> None:
        """Free what a name means, on all hosts. Readers keep what they have.

        Raises
        ------
        UnknownName
            It means nothing.
        """
        self._release_elsewhere(self._ask(Verb.DROP, {"name": name}))

    def _release_elsewhere(self, answer: dict[str, Any]) -> None:
        """Release what a depot says that depots of other hosts hold; one that cannot be reached has a lease."""
        for each in map(REPLACED.unpack, answer["replaced"]):
            self._ask_each(each["depots"], Verb.RELEASE, {"dataset": each["part"]})

    def _ask_each(self, addresses: list[bytes], verb: Verb, fields: dict[str, Any]) -> list[str]:
        """Ask depots at other addresses, each at the first where it answers; return where none did, and why."""
        answered: set[str] = set()
        failed: dict[str, str] = {}
        for address in texts("addresses", addresses):
            depot = token_of(address) or address
            if depot in answered:
                continue
            try:
                connection = DepotConnection(
                    address, _ELSEWHERE_SECONDS, self._tls if encrypts(address) else None
                )
                try:
                    connection.ask(verb, fields, _ELSEWHERE_SECONDS)
                    answered.add(depot)
                finally:
                    connection.close()
            except errors.BowstringError as error:
                # By its own address last, as other hosts find it.
                failed[depot] = f"{address.partition('?')[0]} ({error.what})"
        return [why for depot, why in failed.items() if depot not in answered]

    def list_datasets(self) -> list[DatasetInfo]:
        """Return what all names mean."""
        return [DatasetInfo.unpack(each) for each in self._ask(Verb.LIST, {})["names"]]

    def lookup(self, name: str) -> Dataset:
        """Return the data set that a name means; one endpoint stands for many small data sets that were appended.

        Which ones changes as it grows: :meth:`lookup_version` and :meth:`lookup_range` say what is new.

        Raises
        ------
        UnknownName
            The name means nothing.
        """
        return self.lookup_range(name)[1]

    def lookup_version(self, name: str) -> tuple[Position, Dataset]:
        """Return the position behind the last endpoint of a name, and its data set, by each of its endpoints.

        Of one version endpoints are only ever added, at the end; what replaces it is another version, with other
        positions. Where endpoints are many, :meth:`lookup_range` says less.

        Raises
        ------
        UnknownName
            The name means nothing.
        """
        return self._lookup(name, joined=False)[:2]

    def lookup_range(
        self, name: str, since: Position | str | None = None, until: Position | str | None = None
    ) -> tuple[Position, Dataset]:
        """Return the position behind the last endpoint of a name, and its data set between two positions.

        Parameters
        ----------
        name
            What was announced.
        since, until
            Positions of this name, or their text: the beginning and the end by default. In the data set one
            endpoint stands for many that are small; its `num_rows` and `nbytes` are those of all.

        Raises
        ------
        UnknownName
            The name means nothing.
        DatasetReplaced
            A position belongs to what the name meant before.
        """
        ends = [None if each is None else checked_position(each) for each in (since, until)]
        first, last = (None if each is None else place_of(each)[1] for each in ends)
        position, dataset, _ = self._lookup(name, first or 0, last)
        for each in ends:
            if each is not None:
                check_reached(each, position)
        return position, dataset

    def _lookup(
        self, name: str, first: int = 0, last: int | None = None, *, joined: bool = True
    ) -> tuple[Position, Dataset, str | None]:
        """Return the same of a range of numbers, and how it is with the job that makes the data set."""
        answer = self._ask(Verb.LOOKUP, {"name": name, "joined": joined, "first": first, "last": last})
        return Position.parse(answer["position"]), Dataset.from_json(answer["dataset"]), answer["state"]

    # The thread that looks after it.

    def status(self) -> DepotStatus:
        """Return what the depot holds and does."""
        return DepotStatus.from_json(json.loads(self._ask(Verb.STATUS, {})["status"]))

    def stop(self, *, application: str | None = None, everywhere: bool = False) -> bool:
        """End the depot, and return whether it ends. Readers keep what they have mapped; all else is gone.

        Parameters
        ----------
        application
            Free what belongs to this one, and end only a depot that holds nothing else, and that nobody reads.
        everywhere
            Whether the depots that hold other parts of its named data sets end, too, such as those of other hosts;
            one that cannot be reached goes on until it has nothing to keep, and a warning says so.

        Raises
        ------
        DeadlineExceeded
            Its process goes on.
        """
        fields = {} if application is None else {"application": application}
        self._held.pop(application or "", None)
        return self._stop(fields, everywhere=everywhere)

    def _stop(self, fields: dict[str, Any], *, everywhere: bool = False) -> bool:
        self._check()
        main = self._main  # another thread may find the depot that takes its place
        answer = main.ask(Verb.STOP, fields, _ANSWER_SECONDS).fields
        silent = self._ask_each(answer["elsewhere"], Verb.STOP, fields) if everywhere else []
        try:
            if fields and not answer["stopped"]:
                return False
            ended = main.wait_exited(_STOP_SECONDS)
            self.close()
            if not ended:
                raise errors.DeadlineExceeded(
                    f"the depot has not ended in {_STOP_SECONDS:g} s",
                    where=self.address.partition("?")[0],
                    hint="Look into its log, or end its process.",
                )
            return True
        finally:
            if silent:
                text = (
                    f"no depot answers at {', '.join(silent)}: if one runs, it keeps its data for their lease"
                )
                errors.warn_caller([text], RuntimeWarning)

    def _listen(self, tcp: str, *, encrypted: bool | None) -> None:
        """Listen for other hosts where it does not yet, and so does each that takes its place."""
        main, self._listens = self._main, (tcp, encrypted)
        try:
            main.listen(tcp, encrypted=encrypted)
        except (errors.BrokenError, errors.ClosedError):  # it ended just now
            self._reconnected(main)

    # Connections.

    def _ask(self, verb: Verb, fields: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        main = self._main
        try:
            return main.ask(verb, fields, _ANSWER_SECONDS).fields
        except (errors.BrokenError, errors.ClosedError):
            pass  # it may be another one by now: what was held is held there, too
        return self._reconnected(main).ask(verb, fields, _ANSWER_SECONDS).fields

    def _reconnected(self, lost: DepotConnection) -> DepotConnection:
        """Return the connection that came after one that was lost; the first caller that finds that makes it."""
        held: list[bool] = []
        try:
            held += map(self._finding.acquire, (True,), (_ANSWER_SECONDS,))  # see `bowstring.locks`
            if True not in held:
                raise errors.DeadlineExceeded(
                    f"another thread looked for the depot for {_ANSWER_SECONDS:g} s"
                )
            self._check()
            if self._main is not lost:
                return self._main
            lost.close()
            fresh = self._find()
            try:
                if self._listens is not None:
                    fresh.listen(self._listens[0], encrypted=self._listens[1])
                for fields in list(self._held.values()):
                    fresh.ask(Verb.HOLD, fields, _ANSWER_SECONDS)
                with self._lock:
                    self._check()
                    self._main = fresh
            except BaseException:
                fresh.close()
                raise
            return fresh
        finally:
            if True in held:
                self._finding.release()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise errors.ForkedError("the Depot belongs to the parent process", hint="Connect in the child.")
        if self._closed:
            raise errors.ClosedError("the Depot is closed")

    def close(self) -> None:
        """Hang up; what was held is kept for the time of its lease. Idempotent."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            connections = (self._main, self._free)
            self._free = None
        for connection in connections:
            if connection is not None:
                with contextlib.suppress(errors.BowstringError):
                    connection.close()

    def __reduce__(self) -> NoReturn:
        raise errors.NotPicklable(
            "a Depot is a connection of its process", hint="Send its address and connect there."
        )

    def __repr__(self) -> str:
        # What ends up in logs must not let anybody in.
        return f"<Depot {self.address.partition('?')[0]}{' closed' * self._closed}>"
