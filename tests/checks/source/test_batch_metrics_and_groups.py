"""Metrics of batches that are averaged, and groups that hold several prompts."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

METRICS = """
import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch.utils.data import DataLoader
loader = DataLoader(rows, batch_size=16)
scores, total = [], 0.0
"""
AVERAGED = {
    "list": "for b in loader:\n    scores.append(f1_score(b['y'], p(b)))\nprint(np.mean(scores))",
    "sum": "for b in loader:\n    total += f1_score(b['y'], p(b), average='macro')\nprint(total / len(loader))",
    "name": "for b in loader:\n    f1 = f1_score(b['y'], p(b))\n    scores.append(f1)\n"
    "print(sum(scores) / len(scores))",
    "area": "for b in loader:\n    scores.append(roc_auc_score(b['y'], p(b)))\nprint(np.mean(scores))",
    "correlation": "for b in loader:\n    r, _ = spearmanr(b['y'], p(b))\n    scores.append(r)\nprint(np.mean(scores))",
}
WHOLE = {
    "once": "y, z = [], []\nfor b in loader:\n    y += b['y']\n    z += p(b)\nprint(f1_score(y, z))",
    "accuracy": "for b in loader:\n    scores.append(accuracy_score(b['y'], p(b)))\nprint(np.mean(scores))",
    "folds": "for fold in folds:\n    scores.append(f1_score(fold.y, p(fold)))\nprint(np.mean(scores))",
    "documents": "for b in DataLoader(rows, batch_size=1):\n    scores.append(f1_score(b['y'], p(b)))\n"
    "print(np.mean(scores))",
    "episodes": "for e in episode_loader:\n    scores.append(f1_score(e['y'], p(e)))\nprint(np.mean(scores))",
    "shown": "for b in loader:\n    print(f1_score(b['y'], p(b)))",
}
GROUPS = """
import torch
K = 4
for rows in batches:
    prompts = [row["prompt"] for row in rows]
    repeated = {repeated}
    texts = sample(model, repeated)
    rewards = torch.tensor([reward(p, t) for p, t in zip(repeated, texts)])
    groups = rewards.{view}
    advantages = groups - groups.mean(dim=1, keepdim=True)
"""


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", AVERAGED)
def test_a_mean_of_batches_is_reported(way: str) -> None:
    assert count("metric-averaged-over-batches", METRICS + AVERAGED[way] + "\n") == 1


@pytest.mark.parametrize("way", WHOLE)
def test_a_metric_of_all_rows_is_fine(way: str) -> None:
    assert count("metric-averaged-over-batches", METRICS + WHOLE[way] + "\n") == 0


def test_a_metric_that_lightning_averages_is_reported() -> None:
    text = """
import lightning as L
from sklearn.metrics import f1_score
class Model(L.LightningModule):
    def validation_step(self, batch, index):
        f1 = f1_score(batch["y"], self(batch).argmax(-1), average="macro")
        self.log("f1", f1)
"""
    assert count("metric-averaged-over-batches", text) == 1
    assert count("metric-averaged-over-batches", text.replace("validation_step", "score")) == 0


@pytest.mark.parametrize(
    ("repeated", "view", "findings"),
    [
        ("prompts * K", "view(-1, K)", 1),
        ("prompts * 4", "reshape(-1, 4)", 1),
        ("[p for _ in range(K) for p in prompts]", "view(-1, K)", 1),
        ("[p for p in prompts for _ in range(K)]", "view(-1, K)", 0),
        ("prompts * K", "view(K, -1)", 0),
        ("prompts * 2", "view(-1, K)", 0),
    ],
)
def test_groups_are_compared_with_the_order_of_the_prompts(
    repeated: str, view: str, findings: int
) -> None:
    assert count("groups-mix-prompts", GROUPS.format(repeated=repeated, view=view)) == findings


ONE_PROMPT = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2")
ids = tok({texts}, return_tensors="pt"{padding}).input_ids
texts = tok.batch_decode(model.generate(ids.repeat(4, 1), do_sample=True))
rewards = torch.tensor([score(text) for text in texts])
groups = rewards.view(-1, 4)
"""


@pytest.mark.parametrize(
    ("texts", "padding", "findings"), [("prompt", "", 0), ("prompts", ", padding=True", 1)]
)
def test_one_prompt_that_is_repeated_is_one_group(texts: str, padding: str, findings: int) -> None:
    text = ONE_PROMPT.format(texts=texts, padding=padding)
    assert count("groups-mix-prompts", text) == findings


@pytest.mark.parametrize(
    "moved",
    [
        "texts[i + j * n] for i in range(n) for j in range(K)",
        "t for i in range(n) for t in texts[i::n]",
    ],
)
def test_completions_in_another_order_are_fine(moved: str) -> None:
    text = GROUPS.format(repeated="prompts * K", view="view(-1, K)")
    ordered = f"    n = len(prompts)\n    texts = [{moved}]\n    rewards ="
    assert count("groups-mix-prompts", text.replace("    rewards =", ordered)) == 0
