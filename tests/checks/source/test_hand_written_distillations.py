"""Hand-written distillations and contrastive losses: faults of them, and losses that are right."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import AutoModel, AutoModelForCausalLM
student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").train()
teacher = AutoModelForCausalLM.from_pretrained("{teacher}")
{switch}
def compare(own, wanted, t=2.0):
    return F.kl_div(F.log_softmax(own / t, dim=-1), F.softmax(wanted / {heat}, dim=-1), reduction="batchmean") * t**2
for batch in loader:
    own = student(**batch).logits{own}
    {context}
        wanted = teacher(**batch).logits{wanted}
    keep = batch["labels"][:, 1:] != -100
    compare(own[keep], wanted[keep]).backward()
"""
SOUND = {
    "teacher": "Qwen/Qwen2.5-3B",
    "switch": "teacher.eval()",
    "heat": "t",
    "own": "[:, :-1]",
    "wanted": "[:, :-1]",
    "context": "with torch.no_grad():",
}
RULES = (
    "teacher-compared-at-other-positions",
    "temperature-on-one-side-of-a-distillation",
    "teacher-in-training-mode",
    "teacher-of-another-vocabulary",
)
FAULTS = {
    "teacher-compared-at-other-positions": [
        {"wanted": "[:, 1:]"},
        {"own": "[..., 1:, :]", "wanted": "[..., :-1, :]"},
    ],
    "temperature-on-one-side-of-a-distillation": [{"heat": "1.0"}, {"heat": "(2 * t)"}],
    "teacher-in-training-mode": [
        {"switch": "teacher.train()"},
        {"switch": "teacher.eval()\nteacher.train(True)"},
    ],
    "teacher-of-another-vocabulary": [
        {"teacher": "meta-llama/Llama-3.1-8B"},
        {"teacher": "google/gemma-2-2b"},
    ],
}
FINE = [
    {},
    {"own": "", "wanted": ""},
    {"switch": ""},
    {"switch": "teacher.train(False)"},
    {"switch": "teacher.train()\nteacher.eval()"},
    {"teacher": "my/teacher"},
    {"heat": "options.heat"},
    # Both passes have a gradient: which one is the teacher is not told.
    {"context": "if True:", "wanted": "[:, 1:]"},
]


def found(text: str, rule: str) -> int:
    return len(run_rule(parse_module(text, "distil.py"), find_rule(rule)).findings)


@pytest.mark.parametrize(
    ("rule", "change"), [(rule, change) for rule, changes in FAULTS.items() for change in changes]
)
def test_a_fault_of_a_distillation_is_found_by_its_rule_alone(
    rule: str, change: dict[str, str]
) -> None:
    text = HEAD.format(**{**SOUND, **change})
    assert {other: found(text, other) for other in RULES} == {
        other: int(other == rule) for other in RULES
    }


@pytest.mark.parametrize("change", FINE, ids=str)
def test_a_sound_distillation_is_fine(change: dict[str, str]) -> None:
    text = HEAD.format(**{**SOUND, **change})
    assert {rule: found(text, rule) for rule in RULES} == dict.fromkeys(RULES, 0)


GKD = """
from trl.experimental.{module} import {trainer}
{trainer}(model="Qwen/Qwen2.5-0.5B", teacher_model="{teacher}", args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("trainer", "teacher", "count"),
    [
        ("GKDTrainer", "Qwen/Qwen2.5-7B", 0),
        ("GKDTrainer", "Qwen/Qwen2.5-0.5B", 1),
        ("GKDTrainer", "google/gemma-2-9b-it", 1),
        ("GOLDTrainer", "google/gemma-2-9b-it", 0),
    ],
)
def test_trainers_that_distil_need_a_teacher_of_the_same_vocabulary(
    trainer: str, teacher: str, count: int
) -> None:
    text = GKD.format(module=trainer[:3].lower(), trainer=trainer, teacher=teacher)
    assert found(text, "teacher-of-another-vocabulary") == count


CONTRAST = """
import torch
import torch.nn.functional as F
from transformers import AutoModel
model = AutoModel.from_pretrained("microsoft/mpnet-base")
def embed(texts, length=True):
    states = model(**texts).last_hidden_state[:, 0]
    return F.normalize(states, dim=-1) if length else states
for one, other in loader:
    a, b = embed(one), embed(other)
    loss = F.cross_entropy({scores}, {target})
    loss.backward()
"""
DIAGONAL = "torch.arange(len(a)).to(a.device)"
LOSSES = {
    ("a @ b.T", DIAGONAL): 1,
    ("torch.matmul(a, b.transpose(0, 1))", DIAGONAL): 1,
    ("a @ b.T / 0.05", "torch.zeros(len(a), dtype=torch.long)"): 1,
    ("a @ b.T * 20", DIAGONAL): 0,
    ("a @ b.T / temperature", DIAGONAL): 0,
    (
        "torch.cat([(a * b).sum(-1, keepdim=True), a @ queue], 1)",
        "torch.zeros(len(a), dtype=torch.long)",
    ): 0,
    ("(a * 20) @ b.T", DIAGONAL): 0,
    ("a @ weights", "labels"): 0,
}


@pytest.mark.parametrize(("scores", "target"), LOSSES)
def test_contrastive_losses_need_a_scale_and_the_diagonal(scores: str, target: str) -> None:
    text = CONTRAST.format(scores=scores, target=target)
    assert found(text, "contrastive-scores-or-targets-wrong") == LOSSES[scores, target]


REWARDED = """
from transformers import AutoModelForSequenceClassification
from trl import GRPOTrainer
judge = AutoModelForSequenceClassification.from_pretrained("{name}", num_labels=1)
GRPOTrainer(model="Qwen/Qwen3-0.6B", reward_funcs={given}, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("name", "given", "count"),
    [
        ("Qwen/Qwen2.5-1.5B", "judge", 1),
        ("meta-llama/Llama-3.1-8B-Instruct", "[correct, judge]", 1),
        ("unused", "'Qwen/Qwen2.5-7B-Instruct'", 1),
        ("Qwen/Qwen2.5-Math-PRM-7B", "judge", 0),
        ("Skywork/Skywork-Reward-V2-Llama-3.1-8B", "judge", 0),
        ("out/reward", "judge", 0),
        ("unused", "correct", 0),
    ],
)
def test_a_language_model_is_no_reward_model(name: str, given: str, count: int) -> None:
    assert (
        found(REWARDED.format(name=name, given=given), "reward-model-with-a-random-head") == count
    )
