"""Parquet files that tasks read themselves: files and columns of a plan, and their batches as Spark gives them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.errors import InvalidData, Unsupported
from bowstring.parquet.file import OpenFile
from bowstring.parquet.source import file_system
from bowstring.spark.frames import listed
from bowstring.spark.task import DepotTask, running_task
from bowstring.spark.types import LISTS, TAKEN_AS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bowstring.spark.task import Order

_PARQUET: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_USUAL: Final = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
_OPTIONS: Final = ("datetimeRebaseMode", "int96RebaseMode")
_SPECIAL: Final = frozenset(
    ("VariantType", "GeometryType", "GeographyType", "CharType", "VarcharType", "CalendarIntervalType")
)
_READ_BY_SPARK: Final = "publish(…, scan='spark') lets Spark read the files."
_HINT: Final = "publish(…, scan='spark') lets Spark read the files, whatever the plan is."


def scan_of(df: Any) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the URIs of Parquet files and the columns of them, with new names, that are all a data frame reads."""
    # Before the plan, in which Spark computes them of what the files hold.
    special = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in df.schema.fields
        if _is_special(field.dataType)
    ]
    if special:
        raise Unsupported(
            "types that Spark puts together when it reads", found=", ".join(special), hint=_HINT
        )
    plan = df._jdf.queryExecution().optimizedPlan()
    names: list[tuple[int, str, str]] | None = None
    while plan.getClass().getSimpleName() == "Project":
        names = _chosen(plan, names)
        [plan] = listed(plan.children())
    if plan.getClass().getSimpleName() != "LogicalRelation":
        raise Unsupported("a plan that does more than read Parquet files", found=plan.nodeName(), hint=_HINT)
    relation = plan.relation()
    kind = relation.getClass().getSimpleName()
    if kind != "HadoopFsRelation" or relation.fileFormat().getClass().getName() != _PARQUET:
        raise Unsupported("a plan that reads something else than Parquet files", found=kind, hint=_HINT)
    _check_settings(df.sparkSession.conf, relation)
    if not relation.partitionSchema().isEmpty():
        raise Unsupported("columns that are names of folders", found="a partitioned table", hint=_HINT)
    stored = {each.exprId().id(): each.name() for each in listed(plan.output())}
    known = set(relation.dataSchema().fieldNames())
    chosen = names if names is not None else [(id_, name, name) for id_, name in stored.items()]
    columns = tuple((stored.get(id_, ""), name) for id_, _, name in chosen)
    # pyarrow takes a dot for the way into a struct.
    strange = [name for source, name in columns if source not in known or "." in source]
    if strange:
        raise Unsupported("columns that are not in the files", found=", ".join(strange), hint=_HINT)
    if not columns:
        raise Unsupported("rows without columns", hint=_HINT)
    return tuple(df.inputFiles()), columns


def _check_settings(conf: Any, relation: Any) -> None:
    """Refuse settings and options with which Spark finds other columns or other times in the same files."""
    strange = [
        f"{name}={conf.get(name)}" for name, usual in _USUAL.items() if conf.get(name, usual).lower() != usual
    ]
    options = relation.options()
    strange += [name for name in _OPTIONS if options.contains(name) or options.contains(name.lower())]
    if strange:
        raise Unsupported("settings that change what Spark reads", found=", ".join(strange), hint=_HINT)


def _is_special(type_: Any) -> bool:
    """Whether a type is stored in pieces, or in a form of Spark's own."""
    if type(type_).__name__ in _SPECIAL or hasattr(type_, "sqlType"):
        return True
    inner = [getattr(type_, name) for name in ("elementType", "keyType", "valueType") if hasattr(type_, name)]
    inner += [field.dataType for field in getattr(type_, "fields", ())]
    return any(map(_is_special, inner))


def _chosen(project: Any, above: list[tuple[int, str, str]] | None) -> list[tuple[int, str, str]]:
    """Return (identity below, name below, name in the data frame) of what is wanted of a projection."""
    below: dict[int, tuple[int, str, str]] = {}
    for each in listed(project.projectList()):
        kind = each.getClass().getSimpleName()
        source = each.child() if kind == "Alias" else each
        if source.getClass().getSimpleName() != "AttributeReference":
            raise Unsupported("a plan that computes a column", found=each.toString(), hint=_HINT)
        below[each.exprId().id()] = (source.exprId().id(), source.name(), each.name())
    if above is None:
        return list(below.values())
    return [(*below[id_][:2], name) for id_, _, name in above]


_PIECE_BYTES: Final = 128 << 20
_BATCH_ROWS: Final = 128 * 1024


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a Parquet file: the row groups that begin in a range of its bytes."""

    uri: str
    begin: int
    end: int
    # How large the file was when it was cut, in bytes.
    size: int


def pieces_of(files: Iterable[str], least: int) -> list[Piece]:
    """Cut files into pieces of at most 128 MiB, and into at least so many pieces as there are cores to read them.

    Files of no bytes have no rows, for Spark neither.
    """
    known = []
    for uri in files:
        filesystem, path = _opened(uri)
        with filesystem.open_input_file(path) as source:
            known.append((uri, int(source.size())))
    total = sum(size for _, size in known)
    most = max(1, min(_PIECE_BYTES, -(-total // max(1, least))))
    pieces = []
    for uri, size in known:
        count = -(-size // most)
        bounds = [size * index // count for index in range(count + 1)] if count else []
        pieces += [Piece(uri, begin, end, size) for begin, end in itertools.pairwise(bounds)]
    return pieces


def _opened(uri: str) -> tuple[Any, str]:
    try:
        return file_system(uri)
    except Unsupported as error:
        error.hint = _READ_BY_SPARK
        raise


@dataclasses.dataclass(frozen=True)
class ScanTask:
    """Publishes a piece of a Parquet file; Spark calls it with a partition of a range, whose rows mean nothing."""

    order: Order
    # One for each partition.
    pieces: Sequence[Piece]
    # Names in the files, and names in the data set.
    columns: tuple[tuple[str, str], ...]
    # What Spark would give; the files must hold it.
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish one piece, and give back one ticket."""
        for _ in numbers:
            pass  # a worker that leaves something of its input unread is not used again
        partition = running_task().partitionId()
        if self.order.only is None or partition in self.order.only:
            yield DepotTask(self.order).ticket(self.read(self.pieces[partition])).as_batch()

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read a piece, as Spark would give it."""
        filesystem, path = _opened(piece.uri)
        with filesystem.open_input_file(path) as source:
            if source.size() != piece.size:
                raise InvalidData(
                    "a Parquet file has changed while it was published",
                    expected=f"{piece.size} bytes",
                    found=f"{source.size()} bytes",
                    where=piece.uri,
                )
            file = OpenFile(source)
            begins = map(file.row_group_begin, range(file.num_row_groups))
            groups = [index for index, begin in enumerate(begins) if piece.begin <= begin < piece.end]
            if not groups:
                return
            sources = [source_name for source_name, _ in self.columns]
            check_file(file, sources, self.schema, piece.uri)
            # Those of INT96 are, though their type has no zone.
            int96 = (node for node in file.footer.nodes() if node.element.physical_type == "INT96")
            instants = {".".join(node.path) for node in int96}
            selection = file.select(sources)
            rows = min([_BATCH_ROWS, *(file.size(group, selection.leaves).rows for group in groups)])
            for batch in file.iter_row_groups(groups, selection, rows, threads=False):
                arrays = [
                    as_spark(batch.column(name), field, piece.uri, instants=name in instants)
                    for name, field in zip(sources, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_VERSION: Final = b"org.apache.spark.version"
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_PLAIN: Final = b"3.1.0"
_YEAR_1: Final = -62_135_596_800_000_000
_YEAR_10000: Final = 253_402_300_800_000_000


def check_file(file: OpenFile, names: list[str], wanted: pa.Schema, where: str) -> None:
    """Refuse a file in which Spark might find other columns, or other days, than pyarrow does."""
    names_there = [name.lower() for name in file.schema.names]
    for name in names:
        # Spark finds names whatever their case, gives nulls where there is none, and refuses two: not we.
        if name not in file.schema.names or names_there.count(name.lower()) != 1:
            raise InvalidData("a Parquet file lacks a column, or has it twice", expected=name, where=where)
    notes = file.metadata.metadata or {}
    version = notes.get(_VERSION)
    old = version is not None and version < _FIRST_PLAIN
    if (old or any(key in notes for key in _LEGACY)) and any(_has_days(field.type) for field in wanted):
        raise InvalidData(
            "a Parquet file counts days by a calendar that Spark converts from",
            found=f"written by Spark {(version or b'').decode(errors='replace')}",
            where=where,
            hint=_READ_BY_SPARK,
        )


def as_spark(array: Any, field: pa.Field, where: str, *, instants: bool = False) -> Any:
    """Return a column in Spark's type."""
    if array.type == field.type and not instants:
        return array
    try:
        if is_same(array.type, field.type, instants=instants):
            if instants:
                # pyarrow takes days before 4713 BC for days far ahead.
                bounds = pc.min_max(array.cast(pa.int64()))
                least, most = bounds["min"].as_py(), bounds["max"].as_py()
                if least is not None and not _YEAR_1 <= least <= most < _YEAR_10000:
                    place = f"{field.name} in {where}"
                    raise InvalidData(
                        "a time is beyond the years that Spark has", where=place, hint=_READ_BY_SPARK
                    )
            # The same values under Spark's type: another zone for the same instants, not another number.
            return array.cast(field.type, safe=True)
        reason: Exception | None = None
    except pa.ArrowException as error:
        reason = error
    raise InvalidData(
        "a Parquet file holds another type than Spark gives",
        expected=str(field.type),
        found=str(array.type),
        where=f"{field.name} in {where}",
        hint=_READ_BY_SPARK,
    ) from reason


def is_same(found: pa.DataType, wanted: pa.DataType, *, instants: bool = False) -> bool:
    """Whether a cast from one type to the other gives what Spark gives."""
    if pa.types.is_dictionary(found):
        return is_same(found.value_type, wanted, instants=instants)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        zoned = instants or found.tz is not None
        return found.unit in ("ms", "us") and zoned == (wanted.tz is not None)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        # Spark finds children by name, whatever their case and order, and gives nulls where there is none.
        return [each.name for each in found] == [each.name for each in wanted] and all(
            is_same(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return is_same(found.key_type, wanted.key_type) and is_same(found.item_type, wanted.item_type)
    if found.id in LISTS and pa.types.is_list(wanted):
        return is_same(found.value_type, wanted.value_type)
    if pa.types.is_time(found):
        return bool(found in (wanted, pa.time64("us")) and wanted == pa.time64("ns"))
    if pa.types.is_duration(found) or pa.types.is_float16(found):
        return bool(found == wanted)  # Spark takes the number in a file for microseconds, whatever its unit
    # The same numbers in a wider type, or the same bytes behind other offsets.
    return bool(found == wanted or TAKEN_AS.get(found.id) == wanted)


def _has_days(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_days(type_.field(index).type) for index in range(type_.num_fields))
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))
