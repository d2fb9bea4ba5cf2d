"""Tensors of unlike axes that meet, positions that hold pads, and both as they should be."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model")
body = AutoModel.from_pretrained("model")
lm = AutoModelForCausalLM.from_pretrained("model")
classifier = AutoModelForSequenceClassification.from_pretrained("model", num_labels=1)
head = nn.Linear(768, 1)
mlp = nn.Sequential(nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 1))
criterion = nn.MSELoss()
for rows in batches:
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt").to("cuda")
    target = torch.tensor([float(row["score"]) for row in rows], device="cuda")
    hidden = body(**batch).last_hidden_state
"""
UNLIKE = {
    "linear": "loss = F.mse_loss(head(hidden[:, 0]), target)",
    "layers": "loss = F.l1_loss(mlp(hidden[:, 0]), target)",
    "criterion": "loss = criterion(head(hidden[:, 0]), target)",
    "sigmoid": "loss = criterion(torch.sigmoid(head(hidden[:, 0])), target)",
    "classifier": "loss = F.mse_loss(classifier(**batch).logits, target)",
    "difference": "loss = ((head(hidden[:, 0]) - target) ** 2).mean()",
    "target first": "loss = F.smooth_l1_loss(target, head(hidden[:, 0]))",
    "group mean": "r = rewards.view(4, 8)\n    a = r - r.mean(dim=1)",
    "group mean by a name": "r = rewards.reshape(-1, 8)\n    m = r.mean(-1)\n    a = (r - m) / 2",
}
ALIKE = {
    "squeezed": "loss = F.mse_loss(head(hidden[:, 0]).squeeze(-1), target)",
    "viewed": "loss = F.mse_loss(head(hidden[:, 0]).view(-1), target)",
    "flattened": "loss = F.mse_loss(head(hidden[:, 0]).flatten(), target)",
    "column": "loss = F.mse_loss(head(hidden[:, 0])[:, 0], target)",
    "target with an axis": "loss = F.mse_loss(head(hidden[:, 0]), target.unsqueeze(1))",
    "each with each": "d = target[:, None] - target[None, :]",
    "kept": "r = rewards.view(4, 8)\n    a = r - r.mean(dim=1, keepdim=True)",
    "first axis": "r = rewards.view(8, 4)\n    a = r - r.mean(dim=0)",
    "unknown": "loss = F.mse_loss(other(hidden), target)",
}
POOLED = {
    "mean": "v = hidden.mean(dim=1)",
    "function": "v = torch.mean(hidden, dim=1)",
    "sum": "v = hidden.sum(1)",
    "log-probabilities": 'ids = batch["input_ids"]\n    logp = F.log_softmax(lm(**batch).logits[:, :-1], -1)\n'
    "    s = logp.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1).sum(-1)",
}
MASKED = {
    "masked": 'm = batch["attention_mask"].unsqueeze(-1)\n    v = (hidden * m).sum(1) / m.sum(1)',
    "filled": "v = hidden.masked_fill(pads, 0).sum(1) / counts",
    "compared": 'm = batch["input_ids"] != tokenizer.pad_token_id\n    v = (hidden * m[..., None]).sum(1)',
    "first position": "v = hidden[:, 0]",
    "other axis": "v = hidden.mean(dim=-1)",
}
LAST = {
    "logits": "x = lm(**batch).logits[:, -1]",
    "logits of a position": "x = lm(**batch).logits[:, -1, :]",
    "states": "x = hidden[:, -1]",
    "by keywords": 'o = lm(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])\n'
    "    x = o.logits[:, -1]",
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", UNLIKE)
def test_tensors_of_unlike_axes_are_reported(way: str) -> None:
    assert count("tensors-broadcast-against-each-other", HEAD + "    " + UNLIKE[way] + "\n") == 1


@pytest.mark.parametrize("way", ALIKE)
def test_tensors_of_like_axes_are_fine(way: str) -> None:
    assert count("tensors-broadcast-against-each-other", HEAD + "    " + ALIKE[way] + "\n") == 0


@pytest.mark.parametrize("way", POOLED)
def test_pads_that_are_pooled_are_reported(way: str) -> None:
    assert count("pads-pooled-with-tokens", HEAD + "    " + POOLED[way] + "\n") == 1


@pytest.mark.parametrize("way", MASKED)
def test_a_mask_takes_the_pads_out(way: str) -> None:
    assert count("pads-pooled-with-tokens", HEAD + "    " + MASKED[way] + "\n") == 0


def test_one_text_has_no_pads() -> None:
    text = HEAD.replace('[row["text"] for row in rows]', "rows").replace("padding=True, ", "")
    assert count("pads-pooled-with-tokens", text + "    v = hidden.mean(1)\n") == 0


@pytest.mark.parametrize("way", LAST)
def test_the_last_position_of_rows_padded_on_the_right_is_reported(way: str) -> None:
    text = HEAD + "    " + LAST[way] + "\n"
    assert count("right-padding-at-generation", text) == 1
    left = text.replace(
        'AutoTokenizer.from_pretrained("model"',
        'AutoTokenizer.from_pretrained("model", padding_side="left"',
    )
    assert count("right-padding-at-generation", left) == 0
