"""The plot and the table of the documents are those of the result file that they name."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from bowstring.benchmarks.report import figures

ROOT = Path(__file__).resolve().parents[2]


def description(png: Path) -> str:
    """Return what an image keeps of the result that it was drawn from."""
    data, at = png.read_bytes(), 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        key, _, text = data[at + 8 : at + 8 + size].partition(b"\0")
        if kind == b"tEXt" and key == b"Description":
            return text.decode()
        at += size + 12
    return ""


@pytest.fixture(scope="module")
def shown() -> tuple[str, str, dict[str, Any]]:
    """Return the file that the page names, its block of figures, and the result in that file."""
    file, block = figures.marked((ROOT / figures.PAGE).read_text("utf-8"))
    return file, block, json.loads((ROOT / figures.RESULTS / file).read_text("utf-8"))


def hand_over(result: dict[str, Any]) -> dict[str, Any]:
    """Return the case that the documents show."""
    [case] = [case for case in result["cases"] if case["name"] == "hand_over"]
    return case


def test_the_table_is_that_of_the_file(shown: tuple[str, str, dict[str, Any]]) -> None:
    """The block is what ``make figures`` makes of the committed result, of all sizes, from code without changes."""
    file, block, result = shown
    assert block == figures.block(result, file)
    sizes = [line_up["ways"][0]["at"]["bytes"] for line_up in hand_over(result)["line_ups"]]
    assert sizes == [size << 20 for size in (1, 16, 64, 256)] * 2
    assert "--full" in result["command"]
    assert not result["environment"]["commit"].endswith("+")


def test_the_plot_is_that_of_the_file(shown: tuple[str, str, dict[str, Any]]) -> None:
    """The image keeps the fingerprint of the result that it was drawn from, and the README shows that image."""
    _, _, result = shown
    assert description(ROOT / figures.IMAGE) == figures.fingerprint(result)
    assert f"({figures.IMAGE})" in (ROOT / "README.md").read_text("utf-8")


def test_other_figures_are_another_table_and_plot(shown: tuple[str, str, dict[str, Any]]) -> None:
    """One median that differs changes the block, and one sample the fingerprint."""
    file, block, result = shown
    other = copy.deepcopy(result)
    [way] = [way for way in hand_over(other)["line_ups"][-1]["ways"] if way["name"] == "bowstring"]
    way["median"] *= 2
    assert figures.block(other, file) != block
    assert figures.fingerprint(other) != figures.fingerprint(result)


def test_a_page_without_the_block_is_an_error() -> None:
    """A page whose marks were lost is not left as it is without a word."""
    with pytest.raises(ValueError, match="no block"):
        figures.marked("# Benchmarks")
