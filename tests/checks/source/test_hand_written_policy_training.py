"""Policy trainings by hand, their groups, baselines and masks; each fault with its healthy likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import all_rules
from truetune.source.parsed_source_file import parse_module, read_module

BY_NAME = {rule.name(): rule for rule in all_rules("source")}
SAMPLED = """
import random
import torch

GROUP, PROMPTS = 8, 4
for step in range(1000):
    batch = random.sample(rows, PROMPTS)
    texts = [tokenizer.apply_chat_template(r["prompt"], tokenize=False) for r in batch]
    texts, golds = {layout}
    ids = policy.generate(**tokenizer(texts, padding=True), do_sample=True)
    answers = tokenizer.batch_decode(ids, skip_special_tokens=True)
    rewards = torch.tensor([score(a, g) for a, g in zip(answers, golds)])
    {advantages}
    loss = -(logps_of(policy, ids) * advantages).mean()
    loss.backward()
"""
RUNS = "[t for t in texts for _ in range(GROUP)], [r['a'] for r in batch for _ in range(GROUP)]"
BLOCKS = "texts * GROUP, [r['a'] for r in batch] * GROUP"
NUMBERED = "[t for _ in range(GROUP) for t in texts], [r['a'] for _ in range(GROUP) for r in batch]"
NEW_IDS = "sampled-ids-replaced-by-new-ones"


def count(name: str, text: str) -> int:
    """The findings of a rule on a script."""
    return len(list(BY_NAME[name](parse_module(text, "train.py")).findings()))


@pytest.mark.parametrize(
    ("layout", "view", "is_found"),
    [
        (BLOCKS, "rewards.view(PROMPTS, GROUP)", True),
        (BLOCKS, "rewards.reshape(len(batch), GROUP)", True),
        (BLOCKS, "torch.reshape(rewards, (PROMPTS, GROUP))", True),
        (BLOCKS, "rewards.unflatten(0, (-1, GROUP))", True),
        (NUMBERED, "rewards.view(len(rewards) // GROUP, GROUP)", True),
        (RUNS, "rewards.view(PROMPTS, GROUP)", False),
        (RUNS, "rewards.reshape(len(batch), GROUP)", False),
        (BLOCKS, "rewards.view(GROUP, PROMPTS).t()", False),
        (BLOCKS, "rewards.view(GROUP, len(batch)).t()", False),
        (NUMBERED, "rewards.view(GROUP, PROMPTS).t()", False),
    ],
)
def test_groups_are_viewed_as_the_prompts_are_laid_out(
    layout: str, view: str, is_found: bool
) -> None:
    text = SAMPLED.format(layout=layout, advantages=f"advantages = {view}")
    assert count("groups-mix-prompts", text) == is_found


@pytest.mark.parametrize(
    ("encoded", "is_found"),
    [
        ("tokenizer([answer.strip() for answer in answers])", True),
        ("[tokenizer.encode(p + a) for p, a in zip(prompts, answers)]", True),
        ("tokenizer([f'{p}{a}</s>' for p, a in zip(prompts, answers)])", True),
        ("tokenizer([env.step(answer) for answer in answers])", False),
        ("tokenizer.encode(f'<result>{run_tool(answers[0])}</result>')", False),
        ("tokenizer.encode(str(len(answers[0])))", False),
    ],
)
def test_what_a_tool_makes_of_an_answer_is_another_text(encoded: str, is_found: bool) -> None:
    advantages = f"advantages, new_ids = rewards - rewards.mean(), {encoded}"
    assert count(NEW_IDS, SAMPLED.format(layout=RUNS, advantages=advantages)) == is_found


ADAPTER = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("m"), "out/sft", is_trainable=True)
trainer = {}(model=model, reward_funcs=score, args={}, train_dataset=rows)
trainer.train()
"""


@pytest.mark.parametrize(
    ("trainer", "arguments", "pin", "is_found"),
    [
        ("GRPOTrainer", "GRPOConfig(beta=0.04)", "trl==0.16.1", True),
        ("RLOOTrainer", "RLOOConfig(beta=0.05)", "trl<0.25", True),
        ("GRPOTrainer", "GRPOConfig(beta=0.0)", "trl==0.16.1", False),
        ("GRPOTrainer", "GRPOConfig(beta=0.04)", "trl==0.28.0", False),
        ("GRPOTrainer", "GRPOConfig(beta=0.04), peft_config=lora", "trl==0.16.1", False),
    ],
)
def test_the_kl_term_of_earlier_releases_is_to_the_base(
    tmp_path: Path, trainer: str, arguments: str, pin: str, is_found: bool
) -> None:
    (tmp_path / "requirements.txt").write_text(f"{pin}\n", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(ADAPTER.format(trainer, arguments), encoding="utf-8")
    rule = BY_NAME["reference-lacks-the-sft-adapter"](read_module(script))
    assert bool(list(rule.findings())) == is_found
