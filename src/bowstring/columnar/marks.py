"""The mark of a Variant on pyarrow arrays, which have no field whose metadata could carry it.

A Variant is a struct, and the name ``arrow.parquet.variant`` in the metadata of its field. A pyarrow array can be
marked by an extension type only.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

# The name of Arrow's specification, and the older one: both mark a Variant.
VARIANT_NAMES: Final = ("arrow.parquet.variant", "parquet.variant")
NAME_KEY: Final = b"ARROW:extension:name"  # where the metadata of a field have the name of its extension type
SERIALIZED_KEY: Final = b"ARROW:extension:metadata"  # where they have what that type says of itself
# pyarrow's Parquet writer takes a type of one of these names for a class of its own, and ends the process: of the
# older name up to version 23, of the newer one from version 24 on. The other name is safe.
_SAFE_NAME: Final = VARIANT_NAMES[int(pa.__version__.partition(".")[0]) >= 24]


class VariantArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no types
    """A pyarrow array that is a Variant; its fields are those of its storage, a struct."""

    def field(self, index: int | str) -> pa.Array:
        """Return a child of the struct, as ``pyarrow.StructArray.field`` does."""
        return self.storage.field(index)


class VariantStorage(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type of a pyarrow array that is a Variant: any storage, and a name that all of pyarrow can work with."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, _SAFE_NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __arrow_ext_class__(self) -> type[VariantArray]:
        return VariantArray

    def __hash__(self) -> int:
        return hash((self.extension_name, self.storage_type))

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _serialized: bytes) -> VariantStorage:
        return cls(storage)


def is_variant(field: pa.Field) -> bool:
    """Return whether a field is marked as a Variant: by its metadata, or by its type."""
    name = (field.metadata or {}).get(NAME_KEY, b"").decode(errors="replace")
    return name in VARIANT_NAMES or getattr(field.type, "extension_name", None) in VARIANT_NAMES


def marked_field(field: pa.Field) -> pa.Field:
    """Return a field of a struct marked as a Variant."""
    metadata = {**(field.metadata or {}), NAME_KEY: VARIANT_NAMES[0].encode(), SERIALIZED_KEY: b""}
    return field.with_metadata(metadata)


def unmarked_field(field: pa.Field) -> pa.Field:
    """Return a field whose metadata name no extension type."""
    kept = {
        key: each for key, each in (field.metadata or {}).items() if key not in (NAME_KEY, SERIALIZED_KEY)
    }
    return field.with_metadata(kept or None)


def with_mark(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the array of a field, as an extension array where it is a Variant."""
    if not is_variant(field):
        return array
    return pa.ExtensionArray.from_storage(VariantStorage(array.type), array)


def without_mark(array: pa.Array, field: pa.Field) -> tuple[pa.Array, pa.Field]:
    """Return an array and its field, with the mark of an extension array moved to the metadata of the field."""
    if not isinstance(array.type, VariantStorage):
        return array, field
    return array.storage, marked_field(field.with_type(array.storage.type))


def field_of(values: Any, array: pa.Array, name: str) -> pa.Field:
    """Return the field of some values that became an array, with the metadata that they give themselves."""
    field = pa.field(name, array.type)
    if isinstance(values, pa.Array) or not hasattr(values, "__arrow_c_schema__"):
        return field
    return field.with_metadata(pa.Field._import_from_c_capsule(values.__arrow_c_schema__()).metadata)
