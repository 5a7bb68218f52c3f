"""Paths: what they mean, and that an error points at its character."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import UsageError
from bowstring.variant import parse_path

NAMES = st.text(st.characters(codec="utf-8"))
STEPS = st.lists(NAMES | st.integers(1 - 2**32, 2**32 - 1), max_size=6)


@given(STEPS)
def test_quoted_steps_come_back(steps: list[str | int]) -> None:
    """Any names and indices, written in brackets as JSON writes them, are the steps of the path."""
    written = "".join(f"[{json.dumps(step)}]" for step in steps)
    assert parse_path("$" + written) == tuple(steps) == parse_path(steps)
    if steps:
        assert parse_path(written) == tuple(steps)


@given(st.lists(st.text(st.sampled_from("ab é$ \U0001f3f9_-0"), min_size=1), min_size=1))
def test_plain_names_come_back(names: list[str]) -> None:
    """Names without dots, brackets and quotes need no quotes behind a dot."""
    assert parse_path("$." + ".".join(names)) == tuple(names)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", ()),
        ("$.a.b[0]['x.y'][\"z\"]", ("a", "b", 0, "x.y", "z")),
        ("a", ("a",)),
        ("a[01]", ("a", 1)),
        (".a", ("a",)),
        ("[3]", (3,)),
        ("$.$", ("$",)),
        ("['$']", ("$",)),
        ("$['']", ("",)),
        (r"$['it\'s']", ("it's",)),
        (r"$['\\\"\n\u00e9']", ('\\"\né',)),
        (r"$['\ud83c\udff9']", ("\U0001f3f9",)),
        ("$[4294967295]", (4294967295,)),
        ("$[-1].a[-02]", (-1, "a", -2)),
        ("$.a[*][*].b", ("a", ..., ..., "b")),
        ("$.*", ("*",)),
    ],
)
def test_what_paths_mean(path: str, steps: tuple[object, ...]) -> None:
    """Quotes, escapes, a `$` that is optional, and indices."""
    assert parse_path(path) == steps


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", 0),
        ("$.", 2),
        ("$..a", 2),
        ("$a", 1),
        ("$.a]", 3),
        ("$.a'b'", 3),
        ("$[", 2),
        ("$[-]", 3),
        ("$[*", 3),
        ("$[**]", 3),
        ("$.*[-4294967296]", 4),
        ("$[1", 3),
        ("$[4294967296]", 2),
        ("$[" + "9" * 5000 + "]", 2),
        ("$['a", 2),
        ("$['a'", 5),
        (r"$['\x']", 4),
        (r"$['\u12']", 4),
        ("$['a']b", 6),
    ],
)
def test_an_error_points_at_its_character(path: str, place: int) -> None:
    """What is no path is refused, with a mark under the first character that cannot be."""
    with pytest.raises(UsageError) as caught:
        parse_path(path)
    lines = str(caught.value).splitlines()
    assert f"character {place} of" in lines[0]
    assert lines[2].index("^") - 4 == place


@given(st.text(st.sampled_from("$.[]'\"\\ab01u")))
def test_any_text_is_a_path_or_refused(path: str) -> None:
    """No text does anything but give steps or a UsageError."""
    try:
        steps = parse_path(path)
    except UsageError:
        return
    assert parse_path(list(steps)) == steps


@pytest.mark.parametrize("step", [-(2**32), 2**32, True, 1.5, None, "\ud800"])
def test_steps_that_are_none(step: object) -> None:
    """A list of steps holds names of Unicode text and indices of 32 bits, and nothing else."""
    with pytest.raises(UsageError):
        parse_path(["a", step])  # type: ignore[list-item]  # on purpose


def test_half_a_character_is_no_name() -> None:
    """An escaped half of a character stands for nothing that a Variant could hold."""
    with pytest.raises(UsageError, match="Unicode"):
        parse_path(r"$['\ud83c']")
