"""Divergences of language models that a mean over the vocabulary makes zero, and those that are averaged rightly."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
student = AutoModelForCausalLM.from_pretrained("a/small")
teacher = AutoModelForCausalLM.from_pretrained("a/large")
s, t = student(**batch).logits, teacher(**batch).logits
V = s.size(-1)
"""
PAIR = "F.log_softmax(s / 2, -1), F.softmax(t / 2, -1)"
MEANS = {
    "default": f"loss = F.kl_div({PAIR}) * 4.0",
    "given": f"loss = F.kl_div({PAIR}, reduction='mean')",
    "class": f"kl = nn.KLDivLoss()\nloss = kl({PAIR})",
    "class given": f"kl = nn.KLDivLoss(reduction='mean', log_target=False)\nloss = kl({PAIR}) * 4.0",
    "beside a loss": f"loss = 0.5 * F.kl_div({PAIR}) + 0.5 * F.cross_entropy(s.view(-1, V), labels)",
    "method": "class Distill:\n    def __init__(self):\n        self.kl = torch.nn.KLDivLoss(reduction='mean')\n"
    f"    def loss(self, s, t):\n        return self.kl({PAIR})",
}
SUMS = {
    "batchmean": f"loss = F.kl_div({PAIR}, reduction='batchmean')",
    "sum": f"loss = F.kl_div({PAIR}, reduction='sum') / n",
    "none": f"loss = F.kl_div({PAIR}, reduction='none').sum(-1).mean()",
    "class": f"kl = nn.KLDivLoss(reduction='batchmean')\nloss = kl({PAIR})",
    "made up for": f"loss = F.kl_div({PAIR}) * V",
    "made up for later": f"loss = F.kl_div({PAIR})\nloss = loss * s.shape[-1]",
    "made up for in a class": f"kl = nn.KLDivLoss()\nloss = kl({PAIR}) * student.config.vocab_size",
    "a variable": f"loss = F.kl_div({PAIR}, reduction=args.reduction)",
    "settings": f"loss = F.kl_div({PAIR}, **options)",
}


def count(text: str) -> int:
    rule = find_rule("divergence-averaged-over-the-vocabulary")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("way", MEANS)
def test_a_mean_over_the_vocabulary_is_told(way: str) -> None:
    assert count(HEAD + MEANS[way]) == 1


@pytest.mark.parametrize("way", SUMS)
def test_another_reduction_is_fine(way: str) -> None:
    assert count(HEAD + SUMS[way]) == 0


def test_few_classes_are_left_alone() -> None:
    classifier = HEAD.replace("AutoModelForCausalLM", "AutoModelForSequenceClassification")
    assert count(classifier + MEANS["default"]) == 0
