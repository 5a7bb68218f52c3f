"""Options of readers and writers, under pyarrow's names; pyarrow's own option objects are taken too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import pyarrow as pa
from pyarrow.ipc import Alignment

from bowstring.errors import Unsupported, UsageError
from bowstring.ipc.flatbuf.message import CODECS, MetadataVersion
from bowstring.limits import Limits

_OTHER_NAMES = {"lz4_frame": "lz4"}  # pyarrow has two names for one codec


class _Options:
    """What both kinds have in common: they are made of keywords, or of pyarrow's object of the same name."""

    @classmethod
    def of(cls, options: Any) -> Self:
        """Return options of ours: the defaults for ``None``, and pyarrow's turned into ours."""
        if options is None:
            return cls()
        if isinstance(options, cls):
            return options
        if isinstance(options, getattr(pa.ipc, cls.__name__)):
            names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # subclasses are
            return cls(**{name: getattr(options, name) for name in names})
        raise UsageError(
            "these are not options for this",
            expected=f"{cls.__name__}, of bowstring.ipc or of pyarrow.ipc",
            found=type(options).__name__,
        )


@dataclasses.dataclass(frozen=True)
class IpcReadOptions(_Options):
    """How streams and files are read.

    Parameters
    ----------
    included_fields
        Positions of the columns to read; all where it is empty. They come in the schema's order, each once. The
        buffers of the others, and dictionaries that only they use, are not looked at; of a file that is not
        mapped they are not even read.
    ensure_native_endian
        Whether data of the other byte order are turned round. A Batch in a foreign byte order would mean nothing,
        so ``False`` refuses such data; in pyarrow it hands them on.
    ensure_alignment
        ``Any`` and ``DataTypeSpecific`` copy the buffers, and only these, that lie at an address where their type
        cannot be read (pyarrow's ``Any`` leaves them); ``At64Byte`` all that do not lie at a multiple of 64.
    use_threads
        Whether compressed bodies may be decompressed by several threads.

    Raises
    ------
    UsageError
        An option has a value that it cannot have.

    Examples
    --------
    >>> IpcReadOptions(included_fields=[2, 0]).included_fields
    (2, 0)
    """

    ensure_native_endian: bool = True
    _: dataclasses.KW_ONLY
    ensure_alignment: Alignment = Alignment.Any
    use_threads: bool = True
    included_fields: Sequence[int] | None = None

    def __post_init__(self) -> None:
        chosen = tuple(self.included_fields or ())
        if any(type(each) is not int or each < 0 for each in chosen):
            raise UsageError("included_fields are positions of columns", found=repr(self.included_fields))
        object.__setattr__(self, "included_fields", chosen)
        alignment = _same(
            self.ensure_alignment, (Alignment.Any, Alignment.DataTypeSpecific, Alignment.At64Byte)
        )
        if alignment is None:
            expected = "Any, DataTypeSpecific or At64Byte of Alignment"
            raise UsageError("no such alignment", expected=expected, found=repr(self.ensure_alignment))
        object.__setattr__(self, "ensure_alignment", alignment)


@dataclasses.dataclass(frozen=True)
class IpcWriteOptions(_Options):
    """How streams and files are written.

    Parameters
    ----------
    metadata_version
        ``MetadataVersion.V5``, or ``V4`` for readers from before Arrow 1.0, whose unions have a validity bitmap.
    allow_64bit
        Whether columns, and children of columns, may have more than 2³¹ - 1 slots.
    use_legacy_format
        Whether messages are framed as before Arrow 0.15, with a prefix of 4 bytes.
    compression
        ``"lz4"`` (or ``"lz4_frame"``) or ``"zstd"``, or a ``pyarrow.Codec`` where the level matters, or nothing.
    use_threads
        Whether several threads may compress.
    emit_dictionary_deltas
        Whether of a dictionary that only grew just the new values are written.
    unify_dictionaries
        Whether ``write_table`` gives all batches of a table one dictionary per column first. A file cannot
        replace dictionaries; for streams, which can, it is ignored, as in pyarrow.

    Raises
    ------
    UsageError
        An option has a value that it cannot have.
    Unsupported
        A metadata version from before Arrow 0.8.

    Examples
    --------
    >>> IpcWriteOptions(metadata_version=MetadataVersion.V4).use_legacy_format
    False
    """

    metadata_version: MetadataVersion = MetadataVersion.V5
    _: dataclasses.KW_ONLY
    allow_64bit: bool = False
    use_legacy_format: bool = False
    compression: str | pa.Codec | None = None
    use_threads: bool = True
    emit_dictionary_deltas: bool = False
    unify_dictionaries: bool = False

    def __post_init__(self) -> None:
        version = _same(self.metadata_version, (MetadataVersion.V4, MetadataVersion.V5))
        if version is None:
            raise Unsupported(f"writing metadata version {self.metadata_version!r}", expected="V4 or V5")
        object.__setattr__(self, "metadata_version", version)
        if isinstance(self.compression, str):
            given = self.compression.lower()
            object.__setattr__(self, "compression", _OTHER_NAMES.get(given, given))
        name = self.codec_name
        if name is not None and name not in CODECS.values():
            raise UsageError(
                "no such compression of bodies", expected="'lz4', 'zstd' or None", found=repr(name)
            )
        if name is not None and self.metadata_version is MetadataVersion.V4:
            raise UsageError(
                "metadata version V4 knows no compressed bodies",
                found=f"compression={name!r}",
                hint="Leave out the compression, or write V5.",
            )

    @property
    def codec_name(self) -> str | None:
        """``"lz4"``, ``"zstd"`` or nothing."""
        codec = self.compression
        if isinstance(codec, pa.Codec):
            return str(codec.name)
        if codec is None or isinstance(codec, str):
            return codec
        raise UsageError(
            "compression is a name or a codec",
            expected="str, pyarrow.Codec or None",
            found=type(codec).__name__,
        )


def _same(value: object, members: Iterable[Any]) -> Any:
    """Return the member that equals a value; None if there is none. pyarrow's members are other objects."""
    return next((each for each in members if each == value), None)


def check_reading(limits: Any, memory_pool: Any = None) -> None:
    """Raise `UsageError` if the bounds or the memory pool have the wrong type."""
    if not isinstance(limits, Limits):
        raise UsageError("not limits", expected="a bowstring.Limits", found=repr(limits)[:80])
    if memory_pool is not None and not isinstance(memory_pool, pa.MemoryPool):
        raise UsageError("not a memory pool", expected="a pyarrow.MemoryPool", found=repr(memory_pool)[:80])
