"""How Variants and geometries are told from other structs: by an extension name, or by Spark's mark on a child."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES
from bowstring.columnar.nodes import storage_type

__all__ = ["EXTENSION_NAME", "extension_name", "is_marked", "is_variant", "marked"]

EXTENSION_NAME: Final = VARIANT_NAMES[0]
_CHILDREN: Final = {
    b"variant": ("metadata", "value"),
    b"geometry": ("wkb", "srid"),
    b"geography": ("wkb", "srid"),
}


def extension_name(field: pa.Field) -> str | None:
    """Return the name of a field's extension type, from its type or from its metadata.

    Examples
    --------
    >>> extension_name(pa.field("id", pa.uuid()))
    'arrow.uuid'
    """
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name = (field.metadata or {}).get(NAME_KEY)
    return None if name is None else name.decode(errors="replace")


def is_variant(field: pa.Field) -> bool:
    """Whether a field is a Variant, marked in either way.

    Examples
    --------
    >>> is_variant(pa.field("v", marked(b"variant")))
    True
    """
    storage = storage_type(field.type)
    if not pa.types.is_struct(storage):
        return False
    return extension_name(field) in VARIANT_NAMES or is_marked(storage, b"variant")


def is_marked(type_: pa.DataType, mark: bytes) -> bool:
    """Whether a type is a struct that Spark marked as ``variant``, ``geometry`` or ``geography``.

    Examples
    --------
    >>> is_marked(pa.struct([("value", pa.binary()), ("metadata", pa.binary())]), b"variant")
    False
    """
    if not pa.types.is_struct(type_):
        return False
    bearer, other = _CHILDREN[mark]
    fields = {field.name: field for field in type_}
    return (
        len(fields) == type_.num_fields == 2
        and {bearer, other} == set(fields)
        and (fields[bearer].metadata or {}).get(mark) == b"true"
    )


def marked(mark: bytes) -> pa.DataType:
    """Return Spark's struct of a Variant (``b"variant"``), value first.

    Examples
    --------
    >>> marked(b"variant").names
    ['value', 'metadata']
    """
    bearer, other = _CHILDREN[mark]
    return pa.struct(
        [
            pa.field(other, pa.binary(), nullable=False),
            pa.field(bearer, pa.binary(), nullable=False, metadata={mark: b"true"}),
        ]
    )
