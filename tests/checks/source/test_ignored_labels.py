"""Metrics that count labels of -100 (SRC005), however the file says so, and near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import numpy as np
import torch
from sklearn.metrics import accuracy_score
from transformers import AutoModelForCausalLM, DataCollatorForLanguageModeling, DataCollatorForSeq2Seq, Trainer
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("m")
"""
PICKS = """
def keep_argmax(logits, labels):
    '''Keep the ids alone, not the padding of logits.'''
    return logits.argmax(-1, keepdim=True).squeeze(-1)
"""
SHIFTED = """
def compute_metrics(p):
    guess, gold = p.predictions[:, :-1], p.label_ids[:, 1:]  # no mask needed?
    return {"accuracy": (guess == gold)%s.mean()}
"""
TRAINER = (
    "Trainer(model=model, data_collator=DataCollatorForSeq2Seq(tok), compute_metrics=compute_metrics,"
    " preprocess_logits_for_metrics=keep_argmax)\n"
)
OF_TRL = (
    "SFTTrainer(model=model, args=SFTConfig(output_dir='out'), compute_metrics=compute_metrics,"
    " preprocess_logits_for_metrics=keep_argmax)\n"
)
LOOP = """
def compute_metrics(p):
    right = total = 0
    for guess, gold in zip(p.predictions, p.label_ids):
        right += (guess[:-1] == gold[1:]).sum()
        total += gold.size
    return {"accuracy": right / total}
"""
OF_SKLEARN = """
def compute_metrics(p):
    guess, gold = p
    # -100 is ignored by the loss
    return {"accuracy": accuracy_score(gold[:, 1:].flatten(), np.argmax(guess, axis=-1)[:, :-1].flatten())}
"""
MASKED_ELSEWHERE = """
def compute_metrics(p):
    guess, gold = drop_prompts(p.predictions, p.label_ids)
    return {"accuracy": (guess == gold).mean()}


def drop_prompts(guess, gold):
    guess, gold = guess[:, :-1], gold[:, 1:]
    keep = gold > -1
    return guess[keep], gold[keep]
"""
ON_PADS = TRAINER.replace("Seq2Seq(tok)", "LanguageModeling(tok, mlm=False)")


def codes(text: str, folder: Path) -> list[str]:
    """The codes of SRC005 in one script."""
    path = folder / "fit.py"
    path.write_text(text, encoding="utf-8")
    return [finding.code for finding in lint([path], select=["SRC005"]).findings]


@pytest.mark.parametrize(
    "text",
    [
        PICKS + SHIFTED % "" + TRAINER,
        PICKS + LOOP + TRAINER,
        OF_SKLEARN
        + "labels = [-100] * n + ids\nTrainer(model=model, compute_metrics=compute_metrics)\n",
        PICKS + SHIFTED % "" + OF_TRL,
        PICKS + SHIFTED % "" + ON_PADS,
    ],
)
def test_words_that_mask_nothing_hide_no_fault(text: str, tmp_path: Path) -> None:
    assert codes(HEAD + text, tmp_path) == ["SRC005"]


@pytest.mark.parametrize(
    "text",
    [
        PICKS + SHIFTED % "[gold != -100]" + TRAINER,
        PICKS + MASKED_ELSEWHERE + TRAINER,
        PICKS + SHIFTED % "" + OF_TRL.replace("'out'", "'out', packing=True"),
        PICKS + SHIFTED % "" + ON_PADS.replace("mlm=False", "mlm=True"),
    ],
)
def test_masks_and_rows_of_one_length_are_fine(text: str, tmp_path: Path) -> None:
    assert codes(HEAD + text, tmp_path) == []


def test_labels_of_an_imported_file_count(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "def encode(p, a):\n    return {'labels': [-100] * len(p) + a}\n", encoding="utf-8"
    )
    trainer = TRAINER.replace("DataCollatorForSeq2Seq(tok)", "collate")
    path = tmp_path / "fit.py"
    path.write_text(
        HEAD + "from rows import encode\nrows = encode(p, a)\n" + PICKS + SHIFTED % "" + trainer,
        encoding="utf-8",
    )
    findings = lint([path, tmp_path / "rows.py"], select=["SRC005"]).findings
    assert [finding.evidence for finding in findings] == [("rows.py:2 writes -100 into labels",)]
