"""The cases of Arrow's integration tests, drawn anew: a selection of arrow-testing need not have them all.

A field is written down as the JSON has it. Its values are drawn as plain Python, and said twice: as the JSON says
them (``Integration.rst``, "JSON test data format"), and as ``to_pylist`` of pyarrow does.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

__all__ = ["CASES", "Drawn"]

Json = dict[str, Any]
Values = list[Any]

_INLINE: Final = 12
_UNIT_BITS: Final = {"SECOND": 32, "MILLISECOND": 32, "MICROSECOND": 64, "NANOSECOND": 64}


class Drawn:
    """One case: the document, and the values of each column of each batch.

    Parameters
    ----------
    seed
        Of what is drawn.
    fields
        As the JSON has them.
    sizes
        Rows of each batch.
    dictionaries
        For each id the field of its values, and how many there are; those that others use come first.
    """

    def __init__(
        self, seed: int, fields: list[Json], sizes: list[int], dictionaries: dict[int, tuple[Json, int]]
    ) -> None:
        self._rng = random.Random(seed)
        self._words: dict[int, Values] = {}
        said = []
        for id_, (field, size) in dictionaries.items():
            column, self._words[id_] = self._column({**field, "dictionary": None}, size)
            said.append({"id": id_, "data": {"count": size, "columns": [column]}})
        self.values: list[list[Values]] = []
        batches = []
        for size in sizes:
            columns = [self._column(field, size) for field in fields]
            batches.append({"count": size, "columns": [column for column, _ in columns]})
            self.values.append([values for _, values in columns])
        self.document: Json = {"schema": {"fields": fields}, "dictionaries": said, "batches": batches}

    def _column(self, field: Json, count: int) -> tuple[Json, Values]:
        column: Json = {"name": field["name"], "count": count}
        name = field["type"]["name"]
        encoding = field.get("dictionary")
        valid = [int(not field["nullable"] or self._rng.random() > 0.4) for _ in range(count)]
        if encoding:
            words = self._words[encoding["id"]]
            indices = [self._rng.randrange(len(words)) for _ in range(count)]
            column["DATA"] = [
                str(each) if encoding["indexType"]["bitWidth"] == 64 else each for each in indices
            ]
            values = [words[index] for index in indices]
        elif name in _NESTED:
            values = _NESTED[name](self, field, column, count)
        elif name in ("binary", "utf8", "largebinary", "largeutf8"):
            values = self._texts(field, column, count)
        elif name in ("binaryview", "utf8view"):
            values = self._views(field, column, count)
        else:
            drawn = [_FLAT[name](self._rng, field["type"]) for _ in range(count)]
            column["DATA"], values = [each for each, _ in drawn], [each for _, each in drawn]
        if name in ("null", "union", "runendencoded") and not encoding:
            return column, values
        column["VALIDITY"] = valid
        return column, [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]

    def _raw(self, size: int) -> bytes:
        return bytes(self._rng.choice(b"abcdefghij") for _ in range(size))

    def _texts(self, field: Json, column: Json, count: int) -> Values:
        raw = [self._raw(self._rng.randrange(20)) for _ in range(count)]
        column["OFFSET"] = _places(field, [len(each) for each in raw])
        is_text = "utf8" in field["type"]["name"]
        column["DATA"] = [each.decode() if is_text else each.hex().upper() for each in raw]
        return [each.decode() if is_text else each for each in raw]

    def _views(self, field: Json, column: Json, count: int) -> Values:
        is_text = field["type"]["name"] == "utf8view"
        buffers = [bytearray(), bytearray()]
        views, values = [], []
        for _ in range(count):
            raw = self._raw(self._rng.choice((0, 3, _INLINE, _INLINE + 1, 40)))
            if len(raw) <= _INLINE:
                views.append({"SIZE": len(raw), "INLINED": raw.decode() if is_text else raw.hex().upper()})
            else:
                index = self._rng.randrange(2)
                place = {"BUFFER_INDEX": index, "OFFSET": len(buffers[index])}
                views.append({"SIZE": len(raw), "PREFIX_HEX": raw[:4].hex().upper(), **place})
                buffers[index] += raw
            values.append(raw.decode() if is_text else raw)
        column["VIEWS"] = views
        column["VARIADIC_DATA_BUFFERS"] = [bytes(each).hex().upper() for each in buffers]
        return values

    def _child(self, field: Json, column: Json, count: int, index: int = 0) -> Values:
        child, values = self._column(field["children"][index], count)
        column.setdefault("children", []).append(child)
        return values

    def _null(self, _field: Json, _column: Json, count: int) -> Values:
        return [None] * count

    def _struct(self, field: Json, column: Json, count: int) -> Values:
        names = [child["name"] for child in field["children"]]
        columns = [self._child(field, column, count, index) for index in range(len(names))]
        # Pairs, since a name may come twice.
        return [tuple(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _list(self, field: Json, column: Json, count: int) -> Values:
        sizes = [self._rng.randrange(4) for _ in range(count)]
        column["OFFSET"] = _places(field, sizes)
        values = iter(self._child(field, column, sum(sizes)))
        return [list(itertools.islice(values, size)) for size in sizes]

    def _map(self, field: Json, column: Json, count: int) -> Values:
        return [
            [tuple(value for _, value in pair) for pair in pairs]
            for pairs in self._list(field, column, count)
        ]

    def _fixed_size_list(self, field: Json, column: Json, count: int) -> Values:
        size = field["type"]["listSize"]
        values = iter(self._child(field, column, count * size))
        return [list(itertools.islice(values, size)) for _ in range(count)]

    def _list_view(self, field: Json, column: Json, count: int) -> Values:
        values = self._child(field, column, 10)
        starts = [self._rng.randrange(11) for _ in range(count)]
        sizes = [self._rng.randrange(11 - start) for start in starts]
        say = str if "large" in field["type"]["name"] else int
        column["OFFSET"], column["SIZE"] = [say(each) for each in starts], [say(each) for each in sizes]
        return [values[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def _run_ends(self, field: Json, column: Json, count: int) -> Values:
        cuts = sorted(self._rng.sample(range(1, count), min(3, count - 1))) if count > 1 else []
        ends = [*cuts, count] if count else []
        bits = field["children"][0]["type"]["bitWidth"]
        data = [str(end) if bits == 64 else end for end in ends]
        runs = {"name": "run_ends", "count": len(ends), "VALIDITY": [1] * len(ends), "DATA": data}
        column["children"] = [runs]
        values = self._child(field, column, len(ends), 1)
        lengths = [end - start for start, end in itertools.pairwise([0, *ends])]
        return [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]

    def _union(self, field: Json, column: Json, count: int) -> Values:
        ids = field["type"]["typeIds"]
        column["TYPE_ID"] = [self._rng.choice(ids) for _ in range(count)]
        chosen = [ids.index(each) for each in column["TYPE_ID"]]
        if field["type"]["mode"] == "SPARSE":
            children = [self._child(field, column, count, index) for index in range(len(ids))]
            return [children[child][row] for row, child in enumerate(chosen)]
        column["OFFSET"] = [chosen[:row].count(child) for row, child in enumerate(chosen)]
        children = [self._child(field, column, chosen.count(index), index) for index in range(len(ids))]
        return [children[child][at] for child, at in zip(chosen, column["OFFSET"], strict=True)]


def _places(field: Json, sizes: list[int]) -> Values:
    places = itertools.accumulate(sizes, initial=0)
    return [str(each) if "large" in field["type"]["name"] else each for each in places]


_NESTED: Final[dict[str, Callable[[Drawn, Json, Json, int], Values]]] = {
    "null": Drawn._null,
    "struct": Drawn._struct,
    "map": Drawn._map,
    "fixedsizelist": Drawn._fixed_size_list,
    "runendencoded": Drawn._run_ends,
    "union": Drawn._union,
    **dict.fromkeys(("list", "largelist"), Drawn._list),
    **dict.fromkeys(("listview", "largelistview"), Drawn._list_view),
}


def _integer(rng: random.Random, said: Json) -> tuple[Any, int]:
    bits = said["bitWidth"]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if said["isSigned"] else (0, (1 << bits) - 1)
    value = rng.choice((low, high, rng.randint(low, high)))
    return (str(value) if bits == 64 else value), value


def _float(rng: random.Random, _said: Json) -> tuple[float, float]:
    value = rng.randrange(-2000, 2000) / 4  # half floats hold it
    return value, value


def _bool(rng: random.Random, _said: Json) -> tuple[int, bool]:
    value = rng.random() < 0.5
    return int(value), value


def _decimal(rng: random.Random, said: Json) -> tuple[str, Decimal]:
    most = 10 ** said["precision"] - 1
    value = rng.choice((-most, most, rng.randint(-most, most)))
    return str(value), Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -said["scale"]))


def _fixed(rng: random.Random, said: Json) -> tuple[str, bytes]:
    value = rng.randbytes(said["byteWidth"])
    return value.hex().upper(), value


def _stored(bits: int) -> Callable[[random.Random, Json], tuple[Any, int]]:
    return lambda rng, _said: _integer(rng, {"bitWidth": bits, "isSigned": True})


def _month_day_nano(rng: random.Random, _said: Json) -> tuple[Json, tuple[int, ...]]:
    (months, days, nanoseconds) = (_stored(bits)(rng, {})[1] for bits in (32, 32, 64))
    return {"months": months, "days": days, "nanoseconds": nanoseconds}, (months, days, nanoseconds)


_FLAT: Final[dict[str, Callable[[random.Random, Json], tuple[Any, Any]]]] = {
    "int": _integer,
    "floatingpoint": _float,
    "bool": _bool,
    "decimal": _decimal,
    "fixedsizebinary": _fixed,
    "duration": _stored(64),
    "interval": _month_day_nano,
}


def _field(name: str, type_: str, *children: Json, is_nullable: bool = True, **said: Any) -> Json:
    return {
        "name": name,
        "type": {"name": type_, **said},
        "nullable": is_nullable,
        "children": list(children),
    }


def _int(name: str, bits: int, *, is_signed: bool = True, is_nullable: bool = True) -> Json:
    return _field(name, "int", bitWidth=bits, isSigned=is_signed, is_nullable=is_nullable)


def _encoded(field: Json, id_: int, bits: int = 8, *, is_signed: bool = True) -> Json:
    index = {"name": "int", "bitWidth": bits, "isSigned": is_signed}
    return {**field, "dictionary": {"id": id_, "indexType": index, "isOrdered": False}}


def _with_metadata(field: Json, **pairs: str) -> Json:
    return {**field, "metadata": [{"key": key, "value": value} for key, value in pairs.items()]}


def _decimals(bits: int, precisions: range) -> list[Json]:
    return [_field(f"f{each}", "decimal", precision=each, scale=2, bitWidth=bits) for each in precisions]


def _both(name: str, type_: str, **said: Any) -> list[Json]:
    return [_field(f"{name}_{each}", type_, is_nullable=each, **said) for each in (True, False)]


_PRIMITIVES: Final = [
    *_both("bool", "bool"),
    *(_int(f"{bits} {sign}", bits, is_signed=sign) for bits in (8, 16, 32, 64) for sign in (True, False)),
    *(_field(each, "floatingpoint", precision=each) for each in ("HALF", "SINGLE", "DOUBLE")),
    *(each for width in (19, 120) for each in _both(f"fixed{width}", "fixedsizebinary", byteWidth=width)),
    *(each for type_ in ("binary", "utf8") for each in _both(type_, type_)),
]
_WORD: Final = _field("str", "utf8")
_ENTRIES: Final = _field(
    "entries", "struct", _field("key", "utf8", is_nullable=False), _int("value", 32), is_nullable=False
)
_OTHER_ENTRIES: Final = _field(
    "some_entries",
    "struct",
    _field("some_key", "utf8", is_nullable=False),
    _int("some_value", 32),
    is_nullable=False,
)
_LIST_OF_WORDS: Final = _field("list", "list", _encoded(_field("str_dict", "utf8"), 0))
_STRUCT_OF_WORDS: Final = _field(
    "struct", "struct", *(_encoded(_field(f"str_dict_{each}", "utf8"), 0) for each in "ab")
)

CASES: Final[dict[str, tuple[list[Json], list[int], dict[int, tuple[Json, int]]]]] = {
    "primitive": (_PRIMITIVES, [17, 20], {}),
    "primitive_no_batches": (_PRIMITIVES, [], {}),
    "primitive_zerolength": (_PRIMITIVES, [0, 0, 0], {}),
    "primitive_large_offsets": ([*_both("b", "largebinary"), *_both("u", "largeutf8")], [17, 20], {}),
    "null": (
        [
            _field("f0", "null"),
            _int("f1", 32),
            _field("f2", "null"),
            _field("f3", "floatingpoint", precision="DOUBLE"),
        ],
        [10, 0],
        {},
    ),
    "null_trivial": ([_field("f0", "null")], [0, 0], {}),
    "decimal": (_decimals(128, range(3, 39)), [7, 10], {}),
    "decimal256": (_decimals(256, range(37, 77)), [7, 10], {}),
    "decimal32": (_decimals(32, range(3, 10)), [7, 10], {}),
    "decimal64": (_decimals(64, range(3, 19)), [7, 10], {}),
    "interval_mdn": ([_field("f1", "interval", unit="MONTH_DAY_NANO")], [7, 10], {}),
    "map": ([_field("map_nullable", "map", _ENTRIES, keysSorted=False)], [7, 10], {}),
    "map_non_canonical": ([_field("map_other_names", "map", _OTHER_ENTRIES, keysSorted=True)], [7], {}),
    "nested": (
        [
            _field("list_nullable", "list", _int("item", 32)),
            _field("fixedsizelist_nullable", "fixedsizelist", _int("item", 32), listSize=4),
            _field("fixedsizelist_of_none", "fixedsizelist", _int("item", 32), listSize=0),
            _field("struct_nullable", "struct", _int("f1", 32), _field("f2", "utf8")),
        ],
        [7, 10],
        {},
    ),
    "recursive_nested": (
        [
            _field("lists_list", "list", _field("inner_list", "list", _int("item", 16))),
            _field("structs_list", "list", _field("inner", "struct", _int("f1", 32), _field("f2", "utf8"))),
        ],
        [7, 10],
        {},
    ),
    "nested_large_offsets": (
        [
            _field("nullable", "largelist", _int("item", 32)),
            _field("nonnullable", "largelist", _int("item", 32), is_nullable=False),
            _field("nested", "largelist", _field("inner_list", "list", _int("item", 16))),
        ],
        [0, 13],
        {},
    ),
    "run_end_encoded": (
        [
            _field(
                f"ree{bits}",
                "runendencoded",
                _int("run_ends", bits, is_nullable=False),
                {**child, "name": "values"},
            )
            for bits, child in ((16, _int("", 32)), (32, _WORD), (64, _field("", "bool")))
        ],
        [0, 7, 10],
        {},
    ),
    "binary_view": ([_field("bv", "binaryview"), _field("sv", "utf8view")], [0, 7, 256], {}),
    "list_view": (
        [_field("lv", "listview", _int("item", 32)), _field("llv", "largelistview", _int("item", 64))],
        [0, 7, 256],
        {},
    ),
    "union": (
        [
            _field("sparse_1", "union", _int("f1", 32), _WORD, mode="SPARSE", typeIds=[5, 7]),
            _field(
                "dense_1", "union", _int("f1", 16), _field("f2", "binary"), mode="DENSE", typeIds=[10, 20]
            ),
            _field("dense_2", "union", _int("f1", 8), _field("f3", "null"), mode="DENSE", typeIds=[42, 3]),
        ],
        [0, 11],
        {},
    ),
    "custom_metadata": (
        [
            _with_metadata(_int("sort_of_pandas", 8), pandas="{}"),
            _with_metadata(_int("lots_of_meta", 8), **{".": "{}", "a": "é", "empty": ""}),
            _with_metadata(
                _int("unregistered_extension", 8),
                **{"ARROW:extension:name": "!nonexistent", "ARROW:extension:metadata": ""},
            ),
            _field("list_with_odd_values", "list", _with_metadata(_int("item", 32), odd_values="{}")),
        ],
        [1],
        {},
    ),
    "duplicate_fieldnames": (
        [_int("ints", 8), _int("ints", 32), _field("struct", "struct", _int("", 32), _field("", "utf8"))],
        [1],
        {},
    ),
    "dictionary": (
        [_encoded(_WORD, 0), _encoded(_WORD, 1, 32), _encoded(_int("", 64), 2, 16)],
        [7, 10],
        {0: (_WORD, 10), 1: (_WORD, 5), 2: (_int("", 64), 50)},
    ),
    "dictionary_unsigned": (
        [_encoded(_WORD, index, bits, is_signed=False) for index, bits in enumerate((8, 16, 32, 64))],
        [7, 10],
        dict.fromkeys(range(4), (_WORD, 5)),
    ),
    "nested_dictionary": (
        [_encoded(_LIST_OF_WORDS, 1), _encoded(_STRUCT_OF_WORDS, 2)],
        [10, 13],
        {0: (_WORD, 10), 1: (_LIST_OF_WORDS, 30), 2: (_STRUCT_OF_WORDS, 30)},
    ),
    "shared_dict": (
        [_encoded(_WORD, 0), _encoded({**_WORD, "name": "other"}, 0, 16)],
        [7, 10],
        {0: (_WORD, 10)},
    ),
    "extension": (
        [
            _with_metadata(
                _field("uuids", "fixedsizebinary", byteWidth=16),
                **{"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""},
            ),
            _with_metadata(
                _encoded(_WORD, 0),
                **{
                    "ARROW:extension:name": "dict-extension",
                    "ARROW:extension:metadata": "dict-extension-serialized",
                },
            ),
        ],
        [0, 13],
        {0: (_WORD, 5)},
    ),
}
"""The fields of each case, the rows of its batches, and its dictionaries."""
