"""Runs of items: what goes together says just what the items say one by one, and costs the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.items import IpcMessage, IpcMessageRun, in_runs
from bowstring.dissociated.tags import Want
from tests.dissociated.conftest import Said

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

ROLLS_OVER = 2**32
MOST, MOST_BYTES = 64, 2 << 20


def items_of(runs: list[IpcMessage | IpcMessageRun]) -> list[IpcMessage]:
    return [item for each in runs for item in (each.items if isinstance(each, IpcMessageRun) else [each])]


@given(st.lists(st.sampled_from([0, 1, 1000, 200_000, 2 << 20, (2 << 20) + 8]), max_size=200))
def test_order_and_bounds(material: Material, sizes: list[int]) -> None:
    """Runs hold all items in their order, few and small enough; what is larger, or has no body, is alone."""
    items = [material.schema]
    items += [IpcMessage(b"", material.item(1).spans, nbytes=nbytes) for nbytes in sizes]
    runs = list(in_runs(items))
    assert all(one is other for one, other in zip(items_of(runs), items, strict=True))
    assert runs[0] is material.schema
    for each in runs:
        if isinstance(each, IpcMessageRun):
            assert 2 <= len(each.items) <= MOST
            assert sum(item.nbytes for item in each.items) == each.nbytes <= MOST_BYTES


@given(st.integers(1, 40), st.sampled_from([0, 7, ROLLS_OVER - 9]))
def test_the_same_is_said(material: Material, count: int, first: int) -> None:
    """A run says what its items say one by one, with the same numbers and for the same credit, to each reader."""
    items = [material.item(1 + number % 3, mark=number) for number in range(count)]
    run = IpcMessageRun(items, sum(item.nbytes for item in items))
    made = []
    for _ in range(2):
        together, one_by_one = material.producer(first=first), material.producer(first=first)
        said = together.send_run(run)
        assert said is not None
        expected = [message for item in items for message in one_by_one.send(item)]
        assert [Said.of(each) for each in said.messages()] == [Said.of(each) for each in expected]
        assert together.window.outstanding == one_by_one.window.outstanding
        assert [Said.of(each) for each in together.end()] == [Said.of(each) for each in one_by_one.end()]
        made.append(said)
    assert made[0] is made[1]
    assert run.said(first + 1) is not made[0]


@pytest.mark.parametrize("why", ["credit", "pointers", "metadata", "bodies"])
def test_not_together(material: Material, why: str) -> None:
    """A run without credit for all of it, or on another road, is left to its items, and nothing is counted."""
    items = [material.item(4, material.region(), mark=number) for number in range(3)]
    run = IpcMessageRun(items, 3 * 32)
    wants = {"metadata": Want.METADATA, "bodies": Want.BODIES}
    producer = material.producer(
        window=3 * 32 - 1 if why == "credit" else 1 << 30,
        pointers=why == "pointers",
        want=wants.get(why, Want.DATA),
    )
    assert producer.send_run(run) is None
    assert producer.window.outstanding == 0
    other = material.producer(pointers=why == "pointers", want=wants.get(why, Want.DATA))
    assert [Said.of(each) for item in items for each in producer.send(item)] == [
        Said.of(each) for item in items for each in other.send(item)
    ]
