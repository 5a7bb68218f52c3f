"""Functions and classes as readable text, without what only Bowstring itself uses."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any, Final

import bowstring as bow

__all__ = ["class_lines", "field_lines", "property_lines", "signature", "value_text"]

# Names without an underscore that only other modules of Bowstring use: they may change.
INTERNAL: Final = {
    "Batch": {"dictionaries", "layout", "lease"},
    "Buffer": {"fresh", "owner"},
    "Committed": {"of"},
    "Device": {
        "alignment",
        "array",
        "aside",
        "copy_in",
        "copy_out",
        "from_host",
        "handed_out",
        "later",
        "make_slab",
        "map_slab",
        "maps_by_default",
        "order_for",
        "record",
        "sweep",
        "to_host",
        "use",
        "wait_event",
        "wait_stream",
    },
    "DictionaryMemo": {"all", "complete", "expect", "layout_of", "take"},
    "FakeDevice": {"lend"},
    "Options": {"disk", "folder", "memory"},
    "Pool": {"after_fork", "before_fork"},
    "RecordBatchReader": {"layout"},
    "Region": {"of_slab"},
}

# What the interpreter calls, and what means nothing to a caller.
_NOT_CALLED: Final = frozenset(
    {
        "__class_getitem__",
        "__del__",
        "__eq__",
        "__getnewargs__",
        "__getstate__",
        "__hash__",
        "__init__",
        "__init_subclass__",
        "__new__",
        "__post_init__",
        "__reduce__",
        "__reduce_ex__",
        "__replace__",
        "__repr__",
        "__setattr__",
        "__setstate__",
        "__str__",
        "__subclasshook__",
        "__getattr__",
        "__delattr__",
        "__sizeof__",
        "__dir__",
        "__format__",
        "__annotate__",
        "__annotate_func__",
    }
)


def value_text(value: Any) -> str:
    """Return a default as the source would name it."""
    if value == bow.DEFAULT_LIMITS:
        return "DEFAULT_LIMITS"
    if inspect.isroutine(value) or inspect.isclass(value):
        return str(value.__qualname__)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return "<made anew>"
    if type(value) in (int, float, bool, str, bytes, tuple, frozenset, type(None)):
        return repr(value)
    return f"<{type(value).__name__}>"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _parameter(parameter: inspect.Parameter) -> str:
    kind = parameter.kind
    stars = 2 if kind is inspect.Parameter.VAR_KEYWORD else int(kind is inspect.Parameter.VAR_POSITIONAL)
    text = "*" * stars + parameter.name
    annotation = _annotation(parameter.annotation)
    if annotation:
        text += f": {annotation}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {value_text(parameter.default)}" if annotation else f"={value_text(parameter.default)}"
    return text


def signature(function: Any, *, bound: bool = False) -> str:
    """Return the parameters and the result of a function, one line; without ``self`` where it is a method."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    parts: list[str] = []
    kind: Any = None
    for parameter in parameters:
        if kind is inspect.Parameter.POSITIONAL_ONLY and parameter.kind is not kind:
            parts.append("/")
        starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and kind not in starred:
            parts.append("*")
        parts.append(_parameter(parameter))
        kind = parameter.kind
    if kind is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    result = _annotation(found.return_annotation)
    return f"({', '.join(parts)})" + (f" -> {result}" if result else "")


def _internal(cls: type) -> frozenset[str]:
    return frozenset(name for each in cls.__mro__ for name in INTERNAL.get(each.__name__, ()))


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public names that Bowstring gives a class, wherever its bases define them."""
    hidden = _internal(cls)
    for name in sorted(dir(cls)):
        home = next((each for each in cls.__mro__ if name in vars(each)), None)
        if home is None or not home.__module__.startswith("bowstring") or name in hidden:
            continue
        magic = name.startswith("__") and callable(getattr(cls, name)) and name not in _NOT_CALLED
        if magic or not name.startswith("_"):
            yield name, vars(home)[name]


def _attributes_of_instances(cls: type) -> set[str]:
    """Return the names without an underscore that constructors give to their objects."""
    found: set[str] = set()
    for each in cls.__mro__:
        maker = vars(each).get("__init__")
        if each.__module__.startswith("bowstring") and inspect.isfunction(maker) and not _is_generated(each):
            found |= set(
                re.findall(r"^ +self\.([a-z]\w*)(?:: [^=\n]+)? = ", inspect.getsource(maker), re.MULTILINE)
            )
    return found - _internal(cls)


def _is_generated(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) and "__dataclass_fields__" in vars(cls)


def _member(name: str, member: Any) -> str | None:
    match member:
        case property() | functools.cached_property():
            get = member.fget if isinstance(member, property) else member.func
            result = _annotation(inspect.signature(get).return_annotation) if get else ""
            writable = ", writable" if isinstance(member, property) and member.fset else ""
            return f"{name}: {result or '?'}  (property{writable})"
        case classmethod() | staticmethod():
            kind = type(member).__name__
            bound = isinstance(member, classmethod)
            return f"{kind} {name}{signature(member.__func__, bound=bound)}"
        case _ if inspect.isfunction(member):
            return f"def {name}{signature(member, bound=True)}"
        case type():
            return None
        case types.MemberDescriptorType():
            return f"{name}  (attribute)"
        case _ if callable(member):
            return f"def {name}(…)"
        case _:
            return f"{name} = {value_text(member)}"


def field_lines(cls: type) -> Iterator[str]:
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.name.startswith("_"):
                continue
            default = ""
            if field.default is not dataclasses.MISSING:
                default = f" = {value_text(field.default)}"
            elif field.default_factory is not dataclasses.MISSING:
                default = f" = {value_text(field.default_factory)}()"
            yield f"{field.name}: {_annotation(field.type)}{default}"
    elif issubclass(cls, tuple):
        for name in getattr(cls, "_fields", ()):
            annotations = inspect.get_annotations(cls)
            yield f"{name}: {_annotation(annotations[name])}" if name in annotations else str(name)


def _bases(cls: type, public: frozenset[type]) -> str:
    """Return the bases that mean something to a user, without those that follow from the ones before."""
    kept: list[type] = []
    for each in cls.__mro__[1:]:
        foreign = (
            each.__module__.partition(".")[0] not in ("bowstring", "abc", "typing") and each is not object
        )
        hidden = each.__name__.startswith("_") or any(issubclass(one, each) for one in kept)
        if (each in public or foreign) and not hidden:
            kept.append(each)
    return f"({', '.join(each.__name__ for each in kept)})" if kept else ""


def class_lines(name: str, cls: type, public: frozenset[type], *, made_by_users: bool = True) -> list[str]:
    lines = [f"class {name}{_bases(cls, public)}"]
    if issubclass(cls, enum.Enum):
        return [*lines, *(f"    {each.name} = {each.value!r}" for each in cls)]
    # A class that does not document its parameters is made by Bowstring.
    if made_by_users and "Parameters\n" in (inspect.getdoc(cls) or "") and "__doc__" in vars(cls):
        with contextlib.suppress(ValueError, TypeError):
            lines.append(f"    {name}{signature(cls).partition(' -> ')[0]}")
    fields = list(field_lines(cls))
    lines += [f"    {field}" for field in fields]
    known = {field.partition(":")[0] for field in fields}
    lines += [
        f"    {each}  (attribute)" for each in sorted(_attributes_of_instances(cls) - known - set(dir(cls)))
    ]
    for member, value in _members(cls):
        text = None if member in known else _member(member, value)
        if text is not None:
            lines.append(f"    {text}")
    return lines


def property_lines(cls: type) -> list[str]:
    """Return the public properties of a class."""
    texts = (_member(name, value) for name, value in _members(cls))
    return [text for text in texts if text and "(property" in text]
