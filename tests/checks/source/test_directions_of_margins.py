"""Own losses of preferences whose margin is that of the rejected answer (SRC293)."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch.nn.functional import logsigmoid\n"
LOOP = """
def encode(batch, side):
    return tok([one[side] for one in batch], return_tensors="pt")
def logps(m, enc):
    per = m(**enc).logits[:, :-1].log_softmax(-1).gather(-1, enc["input_ids"][:, 1:, None])
    return per.squeeze(-1).sum(-1)
for batch in loader:
    c = {{k: v.to("cuda") for k, v in encode(batch, "chosen").items()}}
    r = {{k: v.to("cuda") for k, v in encode(batch, "rejected").items()}}
    pi_c, pi_r = logps(model, c), logps(model, r)
    with torch.no_grad():
        ref_c, ref_r = logps(ref_model, c), logps(ref_model, r)
    margin = BETA * ({margin})
    loss = -F.logsigmoid(margin).mean()
    loss.backward()
"""
RATIOS = """
def loss_of(policy_chosen_logps, policy_rejected_logps, reference_chosen_logps, reference_rejected_logps):
    pi_logratios = policy_{a}_logps - policy_{b}_logps
    ref_logratios = reference_{a}_logps - reference_{b}_logps
    logits = pi_logratios - ref_logratios
    return {loss}
"""
TWO = """
def loss_of(pi, ref):
    chosen_rewards = beta * (pi["chosen"] - ref["chosen"])
    rejected_rewards = beta * (pi["rejected"] - ref["rejected"])
    return -logsigmoid({margin}).mean()
"""
REVERSED = {
    "loop": LOOP.format(margin="(pi_r - ref_r) - (pi_c - ref_c)"),
    "loop with a minus": LOOP.format(margin="-((pi_c - ref_c) - (pi_r - ref_r))"),
    "ratios": RATIOS.format(a="rejected", b="chosen", loss="-F.logsigmoid(0.1 * logits).mean()"),
    "softplus": RATIOS.format(a="chosen", b="rejected", loss="F.softplus(0.1 * logits).mean()"),
    "minus beta": RATIOS.format(
        a="chosen", b="rejected", loss="-F.logsigmoid(-0.1 * logits).mean()"
    ),
    "rewards": TWO.format(margin="rejected_rewards - chosen_rewards"),
    "reward model": (
        "r_pos = rm(**batch['chosen']).logits\nr_neg = rm(**batch['rejected']).logits\n"
        "loss = -F.logsigmoid(r_neg - r_pos).mean()"
    ),
    "mean before the minus": TWO.format(margin="(rejected_rewards - chosen_rewards) - gamma"),
}
RIGHT = {
    "loop": LOOP.format(margin="(pi_c - ref_c) - (pi_r - ref_r)"),
    "ratios": RATIOS.format(a="chosen", b="rejected", loss="-F.logsigmoid(0.1 * logits).mean()"),
    "softplus": RATIOS.format(a="chosen", b="rejected", loss="F.softplus(-0.1 * logits).mean()"),
    "smoothed": RATIOS.format(
        a="chosen",
        b="rejected",
        loss="-F.logsigmoid(0.1 * logits) * (1 - e) - F.logsigmoid(-0.1 * logits) * e",
    ),
    "smoothed in a sum": RATIOS.format(
        a="chosen",
        b="rejected",
        loss="-F.logsigmoid(0.1 * logits) * (1 - e) + -F.logsigmoid(-0.1 * logits) * e",
    ),
    "rewards": TWO.format(margin="chosen_rewards - rejected_rewards"),
    "one side": TWO.format(margin="-rejected_rewards"),
    "maximised": "score = F.logsigmoid(rejected - chosen).mean()\n(-score * w).backward()",
    "both minus": TWO.format(margin="-chosen_rewards - rejected_rewards"),
    "mixed": LOOP.format(margin="(pi_c - ref_r) - (pi_r + ref_c)"),
    "without sides": "loss = -F.logsigmoid(a - b).mean()",
    "unlearning": "loss = -F.logsigmoid(-beta * (forget_logps - ref_logps)).mean()",
    "contrast": "loss = -F.logsigmoid(pos_score).mean() - F.logsigmoid(-neg_score).mean()",
}


def count(text: str) -> int:
    """The findings on a script."""
    module = parse_module(HEAD + text, "train.py")
    return len(run_rule(module, find_rule("margin-prefers-the-rejected")).findings)


@pytest.mark.parametrize("text", REVERSED.values(), ids=REVERSED)
def test_margins_of_the_rejected_answer(text: str) -> None:
    assert count(text) == 1


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_margins_of_the_chosen_answer(text: str) -> None:
    assert count(text) == 0
