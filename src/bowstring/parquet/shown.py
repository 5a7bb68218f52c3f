"""What pyarrow is shown instead of a footer: one in which elements that it cannot read rightly are plain."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.errors import BowstringError, InvalidMetadata, Unsupported, first_line
from bowstring.parquet.footer import MAGIC, Footer, encode_footer, encode_schema, framed, once
from bowstring.parquet.logical import CONVERTED, PHYSICAL
from bowstring.parquet.thrift import LIST, STRUCT, Field, encode_list, encode_struct
from bowstring.parquet.types import INT96, PLAIN, Meaning, logical_of, meaning_of, simple_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.parquet.footer import SchemaElement

_OPTIONAL: Final = 1
_FIXED: Final = PHYSICAL.index("FIXED_LEN_BYTE_ARRAY")
_LISTED: Final = (("logical", simple_type("LIST")), ("converted", CONVERTED.index("LIST")))
_NO_ROWS: Final = encode_struct([Field(1, 6, 0), Field(2, LIST, encode_list(STRUCT, []))])
"""What comes after the schema in a footer of no rows: the numbers of fields are counted from that of the schema."""


class Meant(NamedTuple):
    """An element of which pyarrow does not make all that it means."""

    position: int  # its number in the list of the schema
    leaf: int  # its number among the columns of values; of a group, that of the first one in it
    meaning: Meaning
    # Whether it is a map that is shown as a list of pairs, since its keys are optional.
    is_map: bool = False
    error: InvalidMetadata | None = None  # why it, or the group that it is, is not read


@once
def meant_elements(footer: Footer) -> list[Meant]:
    """Return the elements of which pyarrow does not make all that they mean."""
    found = []
    leaf = -1
    for position, element in enumerate(footer.schema):
        is_leaf = element.children is None and element.physical is not None
        leaf += is_leaf
        if element.logical is None and element.converted is None and element.physical != INT96:
            continue
        try:
            # Most columns have a type that another has, too: it is looked up once.
            alike = element._replace(name="", repetition=None, field_id=None, unknown=())
            meaning, error = meaning_of(alike), None
        except InvalidMetadata as refused:
            meaning, error = Meaning(shown=PLAIN), refused.with_traceback(None)
        at = leaf if is_leaf else leaf + 1
        if meaning is not None:
            found.append(Meant(position, at, meaning, error=error))
        elif not is_leaf and _has_optional_keys(footer.schema, position):
            found.append(Meant(position, at, Meaning(shown=_LISTED), is_map=True))
            found.append(Meant(position + 1, at, Meaning(shown=PLAIN)))
    return found


def _has_optional_keys(schema: tuple[SchemaElement, ...], position: int) -> bool:
    """Return whether an element is a map of pairs whose keys are optional."""
    logical = logical_of(schema[position])
    if logical is None or logical.name != "MAP" or schema[position].children != 1:
        return False
    pairs = schema[position + 1]
    return pairs.children == len(("key", "value")) and schema[position + 2].repetition == _OPTIONAL


@once
def refused_by_type(footer: Footer) -> dict[int, BowstringError]:
    """Return the columns of values that cannot be read for what they, or a group around them, mean."""
    refused: dict[int, BowstringError] = {}
    ends: dict[int, int] = {}
    for each in meant_elements(footer):
        error: BowstringError | None = each.error
        if each.meaning.unsupported:
            error = Unsupported(f"a column cannot be read: {each.meaning.unsupported}")
        if error is not None:
            ends = ends or {node.position: node.end_leaf for node in footer.nodes()}
            refused.update(dict.fromkeys(range(each.leaf, ends.get(each.position, each.leaf)), error))
    return refused


def refused_by_pyarrow(
    footer: Footer, elements: list[Meant]
) -> tuple[list[Meant], dict[int, BowstringError]]:
    """Return columns that pyarrow does not open a file with, as elements that are plain, and why.

    Each column is shown to pyarrow alone, in a file of no rows.
    """
    found: list[Meant] = []
    refusals: dict[int, BowstringError] = {}
    shown = _shown_footer(footer, elements).schema
    tops = [node for node in footer.nodes() if len(node.path) == 1]
    ends = [*(node.position for node in tops[1:]), len(footer.schema)]
    for top, end in zip(tops, ends, strict=True):
        inside = range(top.position, end)
        alone = (footer.schema[0]._replace(children=1), *(shown[position] for position in inside))
        try:
            data = MAGIC + framed(encode_footer(Footer(footer.head, alone, _NO_ROWS)))
            _ = pq.ParquetFile(pa.BufferReader(data)).schema_arrow
        except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
            refusal = Unsupported(f"a column cannot be read: {first_line(error)}")
            refusals.update(dict.fromkeys(range(top.first_leaf, top.end_leaf), refusal))
            for position in inside:
                is_empty = shown[position].physical == _FIXED and (shown[position].length or 0) <= 0
                plainest = (*PLAIN, ("length", 1)) if is_empty else PLAIN
                found.append(Meant(position, top.first_leaf, Meaning(shown=plainest)))
    return found, refusals


def _shown_footer(footer: Footer, elements: Iterable[Meant]) -> Footer:
    """Return a footer in which elements are what pyarrow is shown instead."""
    schema = list(footer.schema)
    for each in elements:
        schema[each.position] = schema[each.position]._replace(**dict(each.meaning.shown))
    return dataclasses.replace(footer, schema=tuple(schema))


@once
def _shown_schema(footer: Footer) -> bytes:
    return encode_schema(_shown_footer(footer, meant_elements(footer)).schema)


def shown_file(footer: Footer, elements: list[Meant]) -> bytes:
    """Return a file of nothing but the footer that pyarrow is shown."""
    if elements is not meant_elements(footer):
        return MAGIC + framed(encode_footer(_shown_footer(footer, elements)))
    return MAGIC + framed(footer.head + _shown_schema(footer) + footer.rest)
