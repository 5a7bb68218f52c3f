"""What users can see of Bowstring does not change unnoticed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.public.signatures import INTERNAL
from tests.public.surface import AREAS, MODULES, ROOT, environment_variables

KEPT = ROOT / "tests" / "data" / "public"
UPDATE = "python -m pytest tests/public --update-public"


def _lines(text: str) -> list[str]:
    """Return what counts: Python's versions break the lines of ``--help`` differently."""
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def _compared(area: str, text: str) -> list[str]:
    return _lines(text) if area == "command_line" else text.splitlines()


@pytest.mark.parametrize("area", AREAS)
def test_what_users_see_is_as_it_was(area: str, request: pytest.FixtureRequest) -> None:
    """Names, signatures, options, fields and bases are those of ``tests/data/public``."""
    text, path = AREAS[area](), KEPT / f"{area}.txt"
    if request.config.getoption("--update-public", default=False):
        path.write_text(text, encoding="utf-8")
    assert _compared(area, text) == _compared(area, path.read_text(encoding="utf-8")), (
        f"what users see of {area} changed; if that is meant, say so in the CHANGELOG and run {UPDATE}"
    )


def test_only_public_modules_list_their_names() -> None:
    """What is used of any other module, its importers say: ``uri`` names what old pickles look for there."""
    public = {*MODULES.values(), "bowstring.errors", "bowstring.dissociated.uri"}
    listing = set()
    for folder, package in (("src/bowstring", "bowstring"), ("kernels", "bowstring.kernels")):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "__init__.py" and re.search("^__all__", path.read_text(), re.MULTILINE):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                listing.add(".".join([package, *parts]))
    assert listing <= public


def test_each_kept_text_has_its_area() -> None:
    """No text is left of an area that is not compared any more."""
    assert {path.stem for path in KEPT.iterdir()} == set(AREAS)


@pytest.mark.parametrize("module", [*MODULES.values(), "bowstring.errors"])
def test_public_names_exist(module: str) -> None:
    """Each name in ``__all__`` of a public module can be had, or needs PySpark."""
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        try:
            getattr(loaded, name)
        except ModuleNotFoundError as error:
            assert error.name == "pyspark", name  # noqa: PT017  any other module must be there


@pytest.mark.parametrize("variable", environment_variables())
def test_environment_variables_are_documented(variable: str) -> None:
    """Each environment variable that the source reads is described in ``docs``."""
    assert any(variable in path.read_text(encoding="utf-8") for path in Path(ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("module", [*MODULES.values(), "bowstring.errors", "bowstring.torch"])
def test_dir_lists_what_is_public(module: str) -> None:
    """What a console completes in a public module is what `__all__` has, before and after it was used."""
    loaded = importlib.import_module(module)
    assert [name for name in dir(loaded) if not name.startswith("__")] == sorted(loaded.__all__)


@pytest.mark.parametrize("name", INTERNAL)
def test_dir_of_a_class_shows_what_is_public(name: str) -> None:
    """`dir` shows of a class what the kept texts have, and names that are listed here, all of which are there."""
    modules = map(importlib.import_module, MODULES.values())
    cls, *_ = [getattr(module, name) for module in modules if name in module.__all__]
    assert set(dir(cls)) | set(cls.__annotations__) >= INTERNAL[name]
