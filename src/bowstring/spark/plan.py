"""Plans of Spark that only read Parquet: which files, and which columns of them."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from bowstring.errors import Unsupported

__all__ = ["Scan", "scan_of"]

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
_HINT: Final = "publish(…, scan='spark') lets Spark read the files, whatever the plan is."


@dataclasses.dataclass(frozen=True)
class Scan:
    """What a plan reads.

    Attributes
    ----------
    files
        URIs of the files, in Spark's order.
    columns
        Columns of the files, in the order of the data frame, and what it calls them.
    """

    files: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


def scan_of(df: Any) -> Scan:
    """Return what a data frame reads, if it is columns of Parquet files and nothing else.

    Raises
    ------
    Unsupported
        Spark would do more than read; says what.
    """
    plan = df._jdf.queryExecution().optimizedPlan()
    names: list[tuple[int, str, str]] | None = None
    while plan.getClass().getSimpleName() == "Project":
        names = _chosen(plan, names)
        plan = _only_child(plan)
    if plan.getClass().getSimpleName() != "LogicalRelation":
        raise Unsupported("a plan that does more than read Parquet files", found=plan.nodeName(), hint=_HINT)
    relation = plan.relation()
    kind = relation.getClass().getSimpleName()
    if kind != "HadoopFsRelation" or relation.fileFormat().getClass().getName() != _PARQUET:
        raise Unsupported("a plan that reads something else than Parquet files", found=kind, hint=_HINT)
    _check_settings(df.sparkSession.conf, relation)
    if not relation.partitionSchema().isEmpty():
        raise Unsupported("columns that are names of folders", found="a partitioned table", hint=_HINT)
    stored = {each.exprId().id(): each.name() for each in _listed(plan.output())}
    known = set(relation.dataSchema().fieldNames())
    chosen = names if names is not None else [(id_, name, name) for id_, name in stored.items()]
    columns = tuple((stored.get(id_, ""), name) for id_, _, name in chosen)
    # pyarrow takes a dot for the way into a struct.
    strange = [name for source, name in columns if source not in known or "." in source]
    if strange:
        raise Unsupported("columns that are not in the files", found=", ".join(strange), hint=_HINT)
    if not columns:
        raise Unsupported("rows without columns", hint=_HINT)
    special = [field.name for field in df.schema.fields if _is_special(field.dataType)]
    if special:
        raise Unsupported(
            "types that Spark puts together when it reads", found=", ".join(special), hint=_HINT
        )
    return Scan(tuple(df.inputFiles()), columns)


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
    for each in _listed(project.projectList()):
        kind = each.getClass().getSimpleName()
        source = each.child() if kind == "Alias" else each
        if source.getClass().getSimpleName() != "AttributeReference":
            raise Unsupported("a plan that computes a column", found=each.toString(), hint=_HINT)
        below[each.exprId().id()] = (source.exprId().id(), source.name(), each.name())
    if above is None:
        return list(below.values())
    return [(*below[id_][:2], name) for id_, _, name in above]


def _only_child(plan: Any) -> Any:
    [child] = _listed(plan.children())
    return child


def _listed(sequence: Any) -> list[Any]:
    """Return a sequence of Scala's as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]
