"""``scan_polars``: a data set as a lazy frame of polars, which reads the columns that its query needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.client.names import info_of, list_datasets
from bowstring.client.opening import ConnectOptions, InsideOptions, connect, source_of, ticket_of
from bowstring.client.stream import chosen_columns
from bowstring.columnar.interchange.conversions import needed, polars_frame
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.dissociated.position import version_of
from bowstring.errors import AccessDenied, UnknownName, UnknownTicket, Unsupported, did_you_mean
from bowstring.limits import limits_or_default

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence

    from bowstring.columnar.parts import Validated
    from bowstring.limits import Limits
    from bowstring.transport.certificates import TlsConfig


def scan_polars(
    source: Endpoint | Dataset | str,
    name: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
    validate: Validated | None = None,
) -> Any:
    """Return a ``polars.LazyFrame`` over a data set, which is read when the frame is collected.

    Columns that the query does not need are not read, nor mapped; it stops when it has the rows of ``head``. Rows
    are filtered by polars, on the columns as they come. The frame stands for the version that is there now, without
    what is appended to it later: each ``collect``, and each of the two sides of a self-join, reads the same rows.
    Only ``retain=`` changes them: rows that the server has let go of are missing, and as many later ones are read.

    Parameters
    ----------
    source, name, columns, token, tls, limits, validate
        As in :func:`bowstring.connect`.

    Returns
    -------
    polars.LazyFrame
        To send it to another process, polars needs ``cloudpickle``.

    Raises
    ------
    MissingDependency
        polars is not installed.
    Unsupported
        The data set is for a number of readers (``publish(readers=…)``), of whom polars may need more than one (a
        server on a network without a token does not say that); or polars has no type for a column: leave it out of
        `columns`.
    UnknownName, UnknownTicket, AccessDenied, BrokenError, DeadlineExceeded, UsageError
        As in :func:`bowstring.connect`. ``collect`` raises them, too, such as after the data set was replaced.

    Notes
    -----
    It uses ``polars.io.plugins.register_io_source``, which polars calls unstable.

    Examples
    --------
    >>> import polars as pl, bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("trips", {"fare": [2.5, 30.0, 12.0], "tip": [1, 2, 3]})
    ...     trips = bow.scan_polars(endpoint)
    ...     trips.filter(pl.col("fare") > 10).select("tip").collect().to_series().to_list()
    [2, 3]
    """
    polars = needed("polars")
    plugins = needed("polars.io.plugins")
    limits = limits_or_default(limits)
    place = source_of(source, ticket_of(name, None), token, (), limits, tls)
    schema, version, known_rows = _version(place, tls, limits)

    if columns is not None:
        schema = chosen_columns(schema, tuple(columns))
    shown = polars_frame(_no_rows(schema), polars).schema

    def batches(
        needed_columns: list[str] | None, predicate: Any, rows: int | None, _batch_size: int | None
    ) -> Iterator[Any]:
        # A column is read where only rows are counted: a frame without columns has none.
        wanted = schema.names if needed_columns is None else needed_columns or schema.names[:1]
        left = min((each for each in (rows, known_rows) if each is not None), default=None)
        options = ConnectOptions(validate=validate)
        with connect(
            version, columns=wanted, device="cpu", tls=tls, limits=limits, options=options
        ) as stream:
            yield _filtered(polars_frame(_no_rows(stream.schema), polars), predicate)
            for batch in stream:
                if left is not None and left <= batch.num_rows:
                    yield _filtered(batch.slice(0, left).to_polars(), predicate)
                    return
                left = None if left is None else left - batch.num_rows
                yield _filtered(batch.to_polars(), predicate)

    return plugins.register_io_source(batches, schema=shown, is_pure=True)


def _filtered(frame: Any, predicate: Any) -> Any:
    return frame if predicate is None else frame.filter(predicate)


def _no_rows(schema: pa.Schema) -> pa.Table:
    # Schema.empty_table() knows no unions.
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _version(
    source: Endpoint | Dataset, tls: TlsConfig | ssl.SSLContext | None, limits: Limits
) -> tuple[pa.Schema, Endpoint | Dataset, int | None]:
    """Return schema, what stands for the version that is there now, and its rows, if known; nobody is counted."""
    if isinstance(source, Dataset):
        return source.schema, source, None
    try:
        infos = list_datasets(str(source), tls=tls, limits=limits)
    except AccessDenied:
        # Over a network a server without a token has no lists, and endpoints that stand for one version.
        with connect(source, tls=tls, limits=limits, options=InsideOptions(looks=True)) as stream:
            return stream.schema, source, None
    info = info_of(source, infos)
    if info is None:
        wanted = source.ticket.decode(errors="replace")
        hint = did_you_mean(wanted, [each.name for each in infos], "It may have been withdrawn.")
        unknown = UnknownName if version_of(wanted) is None else UnknownTicket
        raise unknown("no such data set", found=repr(wanted[:80]), hint=hint)
    if info.readers_left is not None:
        raise Unsupported(
            "a data set that is read a number of times cannot be scanned: polars may read it more than once",
            found=f"publish({info.name!r}, readers=…), {info.readers_left} of them left",
            hint="Read it once: bow.connect(…).to_polars().lazy().",
        )
    return info.schema, dataclasses.replace(source, ticket=info.ticket), info.num_rows
