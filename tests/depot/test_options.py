"""Options of a depot: what they say is what was given, and what means nothing is refused before a depot starts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow

BYTES = st.none() | st.integers(0, (1 << 63) - 1)
SECONDS = st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 1 << 80)
PATHS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "memory_budget": BYTES,
    "disk_budget": BYTES,
    "spill_folder": PATHS,
    "lease_seconds": SECONDS,
    "idle_seconds": SECONDS,
    "warm_seconds": SECONDS,
    "plaintext": st.booleans(),
    "tls": st.none() | st.builds(dict, ca=st.just("/ca.pem")),
}
NO_NUMBERS = [True, "1", [], {}, -1, float("nan"), float("inf"), 10**400]
WRONG: dict[str, list[Any]] = {
    "memory_budget": [*NO_NUMBERS, 1.5, 1 << 63],
    "disk_budget": [*NO_NUMBERS, 1.5, 1 << 63],
    "spill_folder": [7, True, [], {}, "a\0b"],
    "lease_seconds": [*NO_NUMBERS, None],
    "idle_seconds": [*NO_NUMBERS, None],
    "warm_seconds": [*NO_NUMBERS, None],
    "plaintext": ["false", 0, 1, None, [], {}],
    "tls": [7, False, "ca.pem", [], {"ca": 7}, {"authority": "ca.pem"}],
}


def test_the_kinds_are_those_of_all_options() -> None:
    """No option is left out here, whatever comes to them."""
    assert [each.name for each in dataclasses.fields(bow.depot.Options)] == list(KINDS) == list(WRONG)


@given(st.fixed_dictionaries({}, optional=KINDS))
def test_options_say_what_was_given(fields: dict[str, Any]) -> None:
    """Values of the right kinds come back from JSON as they were."""
    made = bow.depot.Options.from_json(json.dumps(fields))
    assert bow.depot.Options.from_json(made.to_json()) == made
    assert all(getattr(made, name) == value for name, value in fields.items() if name != "tls")


@pytest.mark.parametrize(("name", "value"), [(name, each) for name, wrong in WRONG.items() for each in wrong])
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    """No option takes what is not of its kind, in Python or as JSON: no text counts as true."""
    with pytest.raises(bow.UsageError):
        bow.depot.Options.from_json(json.dumps({name: value}))
    with pytest.raises(bow.UsageError, match=f"Options.{name} is "):
        bow.depot.Options(**{name: value})


@pytest.mark.parametrize("text", ["", "[]", "null", "7", '{"memory": 1}', "[" * 100_000, '{"a":' * 100_000])
def test_text_that_says_no_options_is_refused(text: str) -> None:
    """However wrong or deep JSON is, of options or of a data set, it is a UsageError."""
    with pytest.raises(bow.UsageError, match="not options"):
        bow.depot.Options.from_json(text)
    with pytest.raises(bow.UsageError, match="no data set"):
        bow.Dataset.from_json(text)
