"""An adapter's run that begins where guessing is, and ends far above what a trained base has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.checks.findings import Finding

ADAPTER = "trainable params: 4,194,304 || all params: 1,100,000,000 || trainable%: 0.38\n"
LOADED = "Loading checkpoint shards: 100%|##########| 4/4 [00:09<00:00,  2.31s/it]\n"
WHOLE = "trainable params: 1,100,000,000 || all params: 1,100,000,000 || trainable%: 100\n"


def found(folder: Path, head: str, first: float, last: float, vocabulary: int = 0) -> list[Finding]:
    losses = (first + (last - first) * step / 39 for step in range(40))
    lines = (
        f"{{'loss': {loss:.4f}, 'learning_rate': {2e-4 - 4e-6 * n:.3g}, 'epoch': {n / 40}}}\n"
        for n, loss in enumerate(losses)
    )
    (folder / "train.log").write_text(head + "".join(lines), encoding="utf-8")
    if vocabulary:
        config = {"vocab_size": vocabulary, "model_type": "llama"}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    report = diagnose(folder)
    return [one for one in report.findings if one.rule == "first-loss-above-guessing"]


def test_a_base_that_does_not_know_the_ids(tmp_path: Path) -> None:
    (one,) = found(tmp_path, ADAPTER, 11.2, 7.4)
    assert "an adapter is trained on a pretrained base" in one.message


@pytest.mark.parametrize(
    "head", [LOADED, LOADED + WHOLE, "loading weights file model.safetensors\n"]
)
def test_a_whole_model_whose_weights_were_loaded(tmp_path: Path, head: str) -> None:
    (one,) = found(tmp_path, head, 11.2, 7.4)
    assert "weights of a saved model were loaded" in one.message


@pytest.mark.parametrize("vocabulary", [0, 32_000])
def test_a_loss_that_stays_is_named_once(tmp_path: Path, vocabulary: int) -> None:
    assert len(found(tmp_path, ADAPTER, 10.4, 10.2, vocabulary)) == 1


@pytest.mark.parametrize(
    ("head", "first", "last"), [(ADAPTER, 2.4, 1.1), (ADAPTER, 11.2, 3.0), (LOADED, 11.2, 3.0)]
)
def test_what_a_trained_base_has(tmp_path: Path, head: str, first: float, last: float) -> None:
    assert not found(tmp_path, head, first, last)


def test_an_untrained_model_may_be_there(tmp_path: Path) -> None:
    assert not found(tmp_path, WHOLE, 11.2, 7.4)
