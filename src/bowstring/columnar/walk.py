"""The pre-order walk over a schema that collects its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from bowstring.columnar.nodes import DICTIONARY, NESTED, Node, physical, storage_type
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.limits import Limits

__all__ = ["Walk"]


class Walk:
    """One pass over a schema that collects its nodes."""

    def __init__(
        self,
        schema: pa.Schema,
        ids: Iterator[int],
        limits: Limits,
        depth: int,
        above: tuple[str, ...] = (),
    ) -> None:
        self.schema = schema
        self.nodes: list[Node] = []
        self.columns: list[int] = []
        self.depth = depth
        self.dictionary_ids: list[int] = []
        self.dictionaries: dict[int, Walk] = {}
        self.column_ids: list[tuple[int, ...]] = []
        self.run_ends: list[int] = []
        self.variadic_nodes: list[int] = []
        self.has_inner_extension = False
        self._buffers = 0
        self._ids = ids
        self._limits = limits
        self._above = above  # where the dictionary is that this is the schema of
        for column, field in enumerate(schema):
            self.columns.append(len(self.nodes))
            known = len(self.dictionary_ids)
            self._visit(field, (), -1, column, depth + 1)
            self.column_ids.append(tuple(self.dictionary_ids[known:]))

    def _visit(self, field: pa.Field, parents: tuple[str, ...], parent: int, column: int, depth: int) -> None:
        index = len(self.nodes)
        path = (*parents, field.name)
        self._bound(depth, index, path)
        type_ = field.type
        if isinstance(type_, pa.BaseExtensionType):
            type_ = storage_type(type_)
            self.has_inner_extension |= parent >= 0
        dictionary_id = dictionary_type = None
        if type_.id == DICTIONARY:
            dictionary_id, dictionary_type = self._dictionary(type_, path, depth)
            type_ = type_.index_type
        kinds, width = physical(type_, path)
        node = Node(
            path, type_, parent, column, self._buffers, kinds, width, field.nullable, (), index + 1,
            dictionary_id, dictionary_type,
        )  # fmt: skip
        self.nodes.append(node)
        self._buffers += len(kinds)
        if node.variadic:
            self.variadic_nodes.append(index)
        if type_.id in NESTED:
            self._descend(node, index, depth)

    def _descend(self, node: Node, index: int, depth: int) -> None:
        type_ = node.type
        children = []
        for position in range(type_.num_fields):
            children.append(len(self.nodes))
            self._visit(type_.field(position), node.path, index, node.column, depth + 1)
        if type_.id == pa.lib.Type_RUN_END_ENCODED:
            self.run_ends.append(index)
        self.nodes[index] = node._replace(children=tuple(children), end=len(self.nodes))

    def _dictionary(
        self, type_: pa.DictionaryType, path: tuple[str, ...], depth: int
    ) -> tuple[int, pa.DataType]:
        id_ = next(self._ids, None)
        if id_ is None:
            raise InvalidMetadata("a dictionary-encoded field has no dictionary id", where=".".join(path))
        value_type = type_.value_type
        if storage_type(value_type).id == DICTIONARY:
            raise Unsupported("a dictionary whose values are dictionary-encoded", where=".".join(path))
        schema = pa.schema([pa.field("values", value_type)])
        values = Walk(schema, self._ids, self._limits, depth, (*self._above, *path))
        if values.has_inner_extension or isinstance(value_type, pa.BaseExtensionType):
            self.has_inner_extension = True
        known = self.dictionaries.get(id_)
        if known is not None and not known.schema.field(0).type.equals(value_type):
            raise InvalidMetadata(
                f"fields that share dictionary {id_} differ in the type of its values",
                expected=known.schema.field(0).type,
                found=value_type,
                where=".".join(path),
            )
        self.depth = max(self.depth, values.depth)
        self.dictionary_ids.append(id_)
        self.dictionary_ids.extend(values.dictionary_ids)
        self.dictionaries.update(values.dictionaries)
        self.dictionaries[id_] = values
        return id_, value_type

    def _bound(self, depth: int, nodes: int, path: tuple[str, ...]) -> None:
        if depth > self._limits.depth:
            raise LimitExceeded(
                "the schema is nested too deeply",
                expected=f"at most {self._limits.depth} levels",
                where=f"column {(*self._above, *path)[0]!r}",
            )
        if nodes >= self._limits.columns:
            raise LimitExceeded(
                "the schema has too many fields",
                expected=f"at most {self._limits.columns}",
                where=".".join((*self._above, *path)),
            )
        self.depth = max(self.depth, depth)
