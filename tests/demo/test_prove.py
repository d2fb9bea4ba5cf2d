from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from truetune.demo import TOKENIZER, run_demo, train_with_eos_and_own_pad
from truetune.demo.plant_faults import write_faulty_tokenizer_copy
from truetune.demo.train_with_eos_and_own_pad import (
    IGNORED,
    ROWS,
    BothTrainings,
    TrainingOutcome,
    labels_of_supervised_tokens,
    labels_without_pad_token_id,
    train_with_both_pads,
    views_of_single_question_chats,
)


def test_the_collator_masks_each_stop_token_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    views = views_of_single_question_chats()
    right = labels_of_supervised_tokens(views)
    for folder, lost in (
        (write_faulty_tokenizer_copy(tmp_path / "tokenizer"), ROWS),
        (TOKENIZER, 0),
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        masked = right[right != labels_without_pad_token_id(views, tokenizer)]
        assert masked.tolist() == [tokenizer.eos_token_id] * lost
    assert [view.ids[view.supervised].tolist() for view in views] == [
        row[row != IGNORED].tolist() for row in right
    ]


@pytest.mark.slow
def test_one_never_stops_and_the_other_always_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """On fewer rows and for fewer steps than a user sees: they are learned as well, in a fourth of the time."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr(train_with_eos_and_own_pad, "ROWS", 6)
    monkeypatch.setattr(train_with_eos_and_own_pad, "STEPS", 80)
    proof = train_with_both_pads()
    assert (proof.broken.stopped, proof.sound.stopped, proof.rows) == (0, 6, 6)
    assert (proof.broken.recited, proof.sound.recited) == (6, 6)
    for outcome in (proof.broken, proof.sound):
        assert len(outcome.losses) == 80
        assert outcome.losses[0] > 7
        assert outcome.losses[-1] < 0.05
    assert proof.sound.sample.endswith("<|im_end|>")
    assert proof.broken.sample.startswith(proof.sound.sample.removesuffix("<|im_end|>"))


def test_both_curves_and_counts_are_drawn() -> None:
    losses = tuple(8 * 0.9**step for step in range(60))
    broken, sound = (
        TrainingOutcome("pad = eos", losses, 20, 0, "Yes.\x1b..."),
        TrainingOutcome("own pad", losses, 19, 20, "Yes."),
    )
    console = Console(file=(written := io.StringIO()), width=80)
    run_demo.render_both_trainings(BothTrainings(broken, sound, 20, "Is [it] so?", 12.3), console)
    drawn = written.getvalue()
    assert "8.00 █" in drawn
    assert "▁ 0.016" in drawn
    assert "0 of 20" in drawn
    assert "19 of 20" in drawn
    assert "Is [it] so?" in drawn
    assert "\x1b" not in drawn


def test_without_the_extra_the_demo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_demo, "NEEDED_PACKAGES", ("a_package_that_is_not_there",))
    console = Console(file=(written := io.StringIO()), width=100)
    assert run_demo.run_demo(console) == 0
    drawn = written.getvalue()
    assert "pip install 'truetune[train]'" in drawn
    assert "pad-is-stop-token" in drawn
    assert "no findings, " in drawn
    assert "(-v lists them) · 200 rows in" in drawn
    assert "[<|im_end|>]" in drawn
