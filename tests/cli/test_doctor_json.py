from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import pytest

from bowstring.cli.doctor import VERSION, Report, as_json, examine
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.gpus import NOTHING_KNOWN
from bowstring.cli.doctor.paths import Obstacle, Path
from tests.memory.fake_nvml import FakeNvml, divided, topology_read, two_linked

pytestmark = pytest.mark.usefixtures("forked")

DOCUMENT = File(__file__).parents[2] / "docs" / "doctor.md"
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object"}


def described() -> dict[str, set[str]]:
    """Return the fields that the document describes, with their types."""
    _, _, text = DOCUMENT.read_text().partition("## JSON")
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)) > 40
    return {field: set(types.split(" or ")) for field, types in rows}


def fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field of a report with its type; objects in lists have none of their own."""
    if isinstance(value, dict):
        if name and not name.endswith("[]"):
            yield name, "object"
        for key, each in value.items():
            yield from fields(each, f"{name}.{key}" if name else key)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from fields(each, f"{name}[]")
    else:
        yield name, TYPES[type(value)]


def reports() -> Iterator[Report]:
    """Yield reports that together have every field, filled and empty."""
    works = Path("unix: mapped", "memory", tried=True, first_view=0.001, took="unix: mapped: because")
    fails = Path("x", "y", tried=False, in_the_way=(Obstacle("a"), Obstacle("b", "c")))
    checks = {"Limits": [Check("a", State.OK, "b"), Check("c", State.BROKEN, "d", "e")]}
    yield Report(checks, None, [works, fails])
    yield Report(checks, {"why_not": "there is no driver", **NOTHING_KNOWN}, [works, fails])
    for value, shown in ((None, None), ("0,9", [])):
        for machine in (two_linked(), divided()):
            yield Report(checks, topology_read(machine, value, shown), [works])
    unknown = two_linked()
    for call in [name for name in vars(FakeNvml) if name.startswith("nvmlDeviceGet")]:
        if call not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
            unknown.refuse[call] = RuntimeError("no")
    yield Report(checks, topology_read(unknown), [works])
    whole = topology_read(divided())
    [instance, *_] = whole["gpus"][0]["mig_instances"]
    first = whole["gpus"][0] | {"mig_instances": [dict.fromkeys(instance) | {"index": 0}]}
    yield Report(checks, whole | {"gpus": [first], "driver": None, "cuda": None}, [works])


def test_the_document_has_every_field_and_no_other() -> None:
    """What is printed is what docs/doctor.md describes: each field, with each of its types, and nothing else."""
    seen: dict[str, set[str]] = {}
    for report in reports():
        for name, kind in fields(json.loads(json.dumps(as_json(report)))):
            seen.setdefault(name, set()).add(kind)
    assert seen == described()


def test_the_version_is_the_documents() -> None:
    """The version that is printed is the one that is described."""
    assert f"`version` is {VERSION}." in DOCUMENT.read_text()


def test_this_machine() -> None:
    """The report of this machine keeps to the document, too, and names the groups that it does."""
    report = examine()
    table = described()
    for name, kind in fields(json.loads(json.dumps(as_json(report)))):
        assert kind in table[name], name
    [groups] = re.findall(r"`checks\[\]\.group`[^\n]+", DOCUMENT.read_text())
    assert list(report.groups) == re.findall(r"`([A-Z][^`]*)`", groups)
