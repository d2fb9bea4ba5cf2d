from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from truetune.demo import run
from truetune.demo.prove import ROWS, STEPS, prove


def test_one_never_stops_and_the_other_always_does() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    proof = prove()
    assert (proof.broken.stopped, proof.right.stopped, proof.rows) == (0, ROWS, ROWS)
    assert (proof.broken.recited, proof.right.recited) == (ROWS, ROWS)
    for outcome in (proof.broken, proof.right):
        assert len(outcome.losses) == STEPS
        assert outcome.losses[0] > 7
        assert outcome.losses[-1] < 0.05


def test_without_the_extra_the_demo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    written = io.StringIO()
    assert run.demo(Console(file=written, width=100)) == 0
    drawn = written.getvalue()
    assert "torch is not installed: pip install 'truetune[train]'" in drawn
    for expected in ("pad-is-stop-token", "clean · 200 rows", "[<|im_end|>]"):
        assert expected in drawn
