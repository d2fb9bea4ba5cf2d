"""Exceptions about the best metric, beside what the evaluations of the same log gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose

TRAIN = "{'loss': 1.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
TIMES = "'eval_runtime': 41.2, 'eval_samples_per_second': 24.3, 'epoch': 1.0}\n"
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/home/u/train.py", line 18, in <module>\n    trainer.train()\n'
    '  File "/opt/transformers/trainer.py", line 3154, in _determine_best_metric\n'
    "    metric_value = metrics[metric_to_check]\n"
)
OLD = "KeyError: '{name}'\n"
NEW = (
    "KeyError: \"The `metric_for_best_model` training argument is set to '{name}', which is not found in the"
    ' evaluation metrics. The available evaluation metrics are: []. Consider changing it."\n'
)


def said(folder: Path, text: str) -> str:
    path = folder / "train.log"
    path.write_text(text)
    report = diagnose(path)
    return " ".join(
        f"{one.message} {one.remedy}" for one in report.findings if one.code == "LOG030"
    )


@pytest.mark.parametrize("words", [OLD, NEW])
def test_evaluations_without_a_loss(tmp_path: Path, words: str) -> None:
    text = said(tmp_path, TRAIN * 4 + "{" + TIMES + TRACE + words.format(name="eval_loss"))
    assert "the evaluations gave no metric" in text
    assert "label_names" in text
    assert "do not fit" not in text


@pytest.mark.parametrize("words", [OLD, NEW])
def test_another_metric_is_given(tmp_path: Path, words: str) -> None:
    given = "{'eval_loss': 1.2, 'eval_f1_macro': 0.5, " + TIMES
    text = said(tmp_path, TRAIN * 4 + given + TRACE + words.format(name="eval_f1"))
    assert "chosen by `eval_f1`, which no evaluation gives" in text
    assert "label_names" not in text


def test_without_an_evaluation_nothing_is_known(tmp_path: Path) -> None:
    text = said(tmp_path, TRAIN * 4 + TRACE + OLD.format(name="eval_loss"))
    assert "do not fit together" in text
