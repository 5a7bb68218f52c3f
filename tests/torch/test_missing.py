"""Without PyTorch the error says what to install, and everything else works."""

from __future__ import annotations

import sys

import pytest

import bowstring as bow


def test_a_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """``bow.torch`` is there, and names the extra when PyTorch is asked for and missing."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [each for each in sys.modules if each.startswith("bowstring.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    bow.torch.__dict__.pop("IterableDataset", None)
    with pytest.raises(bow.MissingDependency, match=r"bowstring\[torch\]"):
        bow.torch.IterableDataset  # noqa: B018  asking is enough
    with pytest.raises(AttributeError, match="no attribute 'Dataset'"):
        bow.torch.Dataset  # noqa: B018
