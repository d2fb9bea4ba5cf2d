"""Policy losses and rewards with a wrong sign, and those with the right one."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn.functional as F
for batch in batches:
    advantages = batch["advantages"]
    logps = logps_of(model, batch)
    ratio = torch.exp(logps - batch["old_logps"])
    dist = torch.distributions.Categorical(logits=model(**batch).logits)
    a = ratio * advantages
    b = torch.clamp(ratio, 0.8, 1.2) * advantages
    pg_loss = -torch.min(a, b).mean()
"""
TAIL = "\n    loss.backward()\n    optimizer.step()\n"
WRONG = {
    "no minus": "loss = (logps * advantages).mean()",
    "no minus on a ratio": "loss = torch.min(a, b).mean()",
    "two minuses": "loss = -(-(logps * advantages)).mean()",
    "sum": "loss = (logps * advantages).sum() / batch['mask'].sum()",
    "rewards": "rewards = batch['rewards']\n    loss = torch.mean(logps * rewards)",
    "entropy of a distribution": "entropy = dist.entropy().mean()\n    loss = pg_loss + 0.01 * entropy",
    "entropy by hand": "entropy = -(logps.exp() * logps).sum(-1).mean()\n    loss = pg_loss + beta * entropy",
    "divergence": "kl = (logps - batch['ref_logps']).mean()\n    loss = pg_loss - 0.1 * kl",
    "k3": "kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1\n    loss = pg_loss - 0.1 * kl.mean()",
    "larger of two": "loss = -torch.max(a, b).mean()",
    "smaller of two losses": "l1 = -advantages * ratio\n    l2 = -advantages * torch.clamp(ratio, 0.8, 1.2)\n"
    "    loss = torch.min(l1, l2).mean()",
}
RIGHT = {
    "minus": "loss = -(logps * advantages).mean()",
    "minus on a mean": "loss = -1.0 * torch.mean(logps * advantages)",
    "clipped": "loss = pg_loss",
    "clipped losses": "l1 = -advantages * ratio\n    l2 = -advantages * torch.clamp(ratio, 0.8, 1.2)\n"
    "    loss = torch.max(l1, l2).mean()",
    "entropy": "entropy = dist.entropy().mean()\n    loss = pg_loss - 0.01 * entropy",
    "negative entropy": "entropy = (logps.exp() * logps).sum(-1).mean()\n    loss = pg_loss + 0.01 * entropy",
    "entropy loss": "entropy_loss = -dist.entropy().mean()\n    loss = pg_loss + 0.01 * entropy_loss",
    "divergence": "kl = (logps - batch['ref_logps']).mean()\n    loss = pg_loss + 0.1 * kl",
    "cross entropy": "nll = F.cross_entropy(x, y, reduction='none')\n    loss = (nll * advantages).mean()",
    "ratio in place": "r = torch.exp(logps - logps.detach()) * advantages\n    loss = -r.mean()",
    "baseline in place": "rewards = batch['rewards']\n    loss = -(logps * (rewards - rewards.mean())).mean()",
    "deviation in place": "rewards = batch['rewards']\n"
    "    loss = -(logps * ((rewards - rewards.mean()) / rewards.std())).mean()",
    "difference of log-probabilities": "loss = -((logps - batch['old_logps']) * advantages).mean()",
    "given loss": "loss = policy_loss_of(model, batch)",
    "supervised": "loss = model(**batch).loss",
}
REWARDS = """
from trl import GRPOTrainer
import Levenshtein
{body}
trainer = GRPOTrainer(model="model", reward_funcs=reward, train_dataset=rows)
"""
PAID = {
    "length": "def reward(completions, **kw):\n    return [abs(200 - len(c)) for c in completions]",
    "float": "def reward(completions, **kw):\n    return [float(abs(len(c) - 200)) / 200 for c in completions]",
    "square": "def reward(completions, n, **kw):\n    out = []\n    for c, k in zip(completions, n):\n"
    "        out.append((len(c) - k) ** 2)\n    return out",
    "edit distance": "def reward(completions, answer, **kw):\n"
    "    return [Levenshtein.distance(c, a) for c, a in zip(completions, answer)]",
    "by a name": "def reward(completions, **kw):\n    out = []\n    for c in completions:\n"
    "        d = abs(len(c) - 9)\n"
    "        out.append(d * 0.1)\n    return out",
    "two minuses": "def reward(completions, **kw):\n    return [1 - (-abs(len(c) - 9)) for c in completions]",
}
FALLING = {
    "minus": "def reward(completions, **kw):\n    return [-abs(200 - len(c)) for c in completions]",
    "one less": "def reward(completions, **kw):\n    return [1 - abs(200 - len(c)) / 200 for c in completions]",
    "below the line": "def reward(completions, **kw):\n    return [1 / (1 + abs(200 - len(c))) for c in completions]",
    "exponential": "import math\ndef reward(completions, **kw):\n"
    "    return [math.exp(-abs(200 - len(c)) / 50) for c in completions]",
    "threshold": "def reward(completions, **kw):\n"
    "    return [1.0 if abs(9 - len(c)) < 3 else 0.0 for c in completions]",
    "similarity": "def reward(completions, answer, **kw):\n"
    "    return [Levenshtein.ratio(c, a) for c, a in zip(completions, answer)]",
    "larger of two": "def reward(completions, **kw):\n    return [max(0.0, 1 - abs(9 - len(c))) for c in completions]",
    "length": "def reward(completions, **kw):\n    return [len(c) for c in completions]",
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", WRONG)
def test_a_term_with_a_wrong_sign_is_reported(way: str) -> None:
    assert count("policy-loss-with-wrong-sign", HEAD + "    " + WRONG[way] + TAIL) == 1


@pytest.mark.parametrize("way", RIGHT)
def test_terms_with_the_right_sign_are_fine(way: str) -> None:
    assert count("policy-loss-with-wrong-sign", HEAD + "    " + RIGHT[way] + TAIL) == 0


def test_an_optimizer_that_climbs_is_left_alone() -> None:
    text = "import torch\noptimizer = torch.optim.AdamW(p, lr=1e-6, maximize=True)\n"
    assert (
        count("policy-loss-with-wrong-sign", text + HEAD + "    " + WRONG["no minus"] + TAIL) == 0
    )


@pytest.mark.parametrize("way", PAID)
def test_a_distance_that_is_paid_is_reported(way: str) -> None:
    assert count("reward-grows-with-the-distance", REWARDS.format(body=PAID[way])) == 1


@pytest.mark.parametrize("way", FALLING)
def test_a_reward_that_falls_with_the_distance_is_fine(way: str) -> None:
    assert count("reward-grows-with-the-distance", REWARDS.format(body=FALLING[way])) == 0


def test_a_penalty_and_weights_are_left_alone() -> None:
    penalty = PAID["length"].replace("def reward(", "def length_penalty(")
    text = REWARDS.format(body=penalty).replace(
        "reward_funcs=reward", "reward_funcs=length_penalty"
    )
    assert count("reward-grows-with-the-distance", text) == 0
    for name in ("paraphrase_reward", "no_copy_reward", "rewriting_reward"):
        text = REWARDS.format(body=PAID["edit distance"]).replace("def reward(", f"def {name}(")
        text = text.replace("reward_funcs=reward", f"reward_funcs={name}")
        assert count("reward-grows-with-the-distance", text) == 0
    weighted = REWARDS.format(body=PAID["length"]) + "config = dict(reward_weights=[-1.0])\n"
    assert count("reward-grows-with-the-distance", weighted) == 0
