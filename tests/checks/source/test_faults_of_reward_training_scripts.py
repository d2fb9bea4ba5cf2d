"""Reward functions that pay for nothing, and policy losses over what was not sampled; each with its healthy likes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import all_rules
from truetune.source.parsed_source_file import parse_module

BY_NAME = {rule.name(): rule for rule in all_rules("source")}
EMPTY = "reward-pays-the-empty-answer"
FAILED = "failed-grading-is-rewarded"
SPREAD = "advantages-divided-by-no-spread"
NEW_IDS = "sampled-ids-replaced-by-new-ones"
REWARD = """
from trl import GRPOTrainer

def right(completions, answer, **kwargs):
    {}

GRPOTrainer(model="m", reward_funcs=right, train_dataset=rows).train()
"""
VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    {}
"""
GRADED = REWARD.format("""rewards = []
    for completion, truth in zip(completions, answer):
        try:
            rewards.append(grade(completion, truth))
        except Exception:
            {}
    return rewards""")
LOSS = """
import torch

for batch in batches:
    rewards = torch.tensor(score(batch)).view(-1, 8)
    {}
    loss = -(logps_of(policy, batch) * advantages).mean()
    loss.backward()
"""
SAMPLED = """
import torch

for batch in batches:
    sampled = policy.generate(**batch["prompts"], do_sample=True)
    texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    {}
    loss = -(logps * (rewards - rewards.mean())).mean()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        (EMPTY, REWARD.format("return [float(c in a or a in c) for c, a in zip(completions, answer)]"), True),
        (EMPTY, REWARD.format("return [1.0 if c in str(a) else 0.0 for c, a in zip(completions, answer)]"), True),
        (EMPTY, REWARD.format("return [1.0 if a.lower().startswith(c) else 0.0 for c, a in zip(completions, answer)]"),
         True),
        (EMPTY, VERL.format("return 1.0 if solution_str.strip() in ground_truth.lower() else 0.0"), True),
        # The reference is looked for, the answer is tested, the references are a list, or the test takes a reward away.
        (EMPTY, REWARD.format("return [1.0 if str(a) in c else 0.0 for c, a in zip(completions, answer)]"), False),
        (EMPTY, REWARD.format("return [float(bool(c) and c in str(a)) for c, a in zip(completions, answer)]"), False),
        (EMPTY, REWARD.format("return [1.0 if c and c in str(a) else 0 for c, a in zip(completions, answer)]"), False),
        (EMPTY, REWARD.format("return [1.0 if len(c) > 3 and c in str(a) else 0 for c, a in zip(completions, answer)]"),
         False),
        (EMPTY, REWARD.format("return [1.0 if c in a else 0.0 for c, a in zip(completions, answer)]"), False),
        (EMPTY, REWARD.format("return [1.0 if c in a.split() else 0.0 for c, a in zip(completions, answer)]"), False),
        (EMPTY, REWARD.format("return [0.0 if c in str(a) else 1.0 for c, a in zip(completions, answer)]"), False),
        (EMPTY, VERL.format("return 1.0 if solution_str == ground_truth else 0.0"), False),
        (FAILED, GRADED.format("rewards.append(1.0)"), True),
        (FAILED, VERL.format("try:\n        return check(solution_str)\n    except Error:\n        return 1"), True),
        (FAILED, GRADED.format("rewards.append(0.0)"), False),
        (FAILED, GRADED.format("rewards.append(None)"), False),
        (FAILED, GRADED.format("failures.append('bad')\n            rewards.append(0.0)"), False),
        (FAILED, "def parse(text):\n    try:\n        return int(text)\n    except Error:\n        return 1\n", False),
        (SPREAD, LOSS.format("advantages = (rewards - rewards.mean(1)) / rewards.std(1)"), True),
        (SPREAD, LOSS.format("advantages = (rewards - rewards.mean()) / torch.std(rewards)"), True),
        (SPREAD, LOSS.format("advantages = (rewards - rewards.mean(1)) / rewards.std(1).unsqueeze(1)"), True),
        (SPREAD, LOSS.format("advantages = (rewards - rewards.mean(1)) / (rewards.std(1) + 1e-6)"), False),
        (SPREAD, LOSS.format("advantages = (rewards - rewards.mean(1)) / rewards.std(1).clamp(min=1e-4)"), False),
        (SPREAD, LOSS.format("advantages = torch.nan_to_num((rewards - rewards.mean(1)) / rewards.std(1))"), False),
        (SPREAD, LOSS.format("if rewards.std() == 0:\n        continue\n"
                             "    advantages = (rewards - rewards.mean()) / rewards.std()"), False),
        # Pixels and figures are standardised as well, by spreads that are never 0.
        (SPREAD, "image = (pixels - pixels.mean()) / pixels.std()\n", False),
        (NEW_IDS, SAMPLED.format("rewards = score(texts)\n    ids = tokenizer(texts, padding=True)['input_ids']\n"
                                 "    logps = logps_of(policy, ids)"), True),
        (NEW_IDS, SAMPLED.format("full = [p + t for p, t in zip(prompts, texts)]\n    rewards = score(texts)\n"
                                 "    logps = logps_of(policy, tokenizer(full, return_tensors='pt').input_ids)"), True),
        (NEW_IDS, SAMPLED.format("rewards = score(texts)\n    logps = logps_of(policy, sampled)"), False),
        # A reward model has a tokenizer of its own, and a function that scores reads texts.
        (NEW_IDS, SAMPLED.format("rewards = judge(**judge_tokenizer(texts, return_tensors='pt')).logits\n"
                                 "    logps = logps_of(policy, sampled)"), False),
    ],
)  # fmt: skip
def test_faults_of_scripts(name: str, text: str, is_found: bool) -> None:
    found = list(BY_NAME[name](parse_module(text, "train.py")).findings())
    assert bool(found) == is_found, [one.message for one in found]


READER = """
import re
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def parse(text):
    found = re.findall(r"####\\s*(-?[\\d.]+)", text)
    return found[-1] if found else None

def right(completions, solution, **kwargs):
    rewards = []
    for completion, gold in zip(completions, solution):
        said, wanted = parse(completion), parse(gold)
        {}
    return rewards

rows = load_dataset("json", data_files="rows.jsonl", split="train")
GRPOTrainer(model="m", reward_funcs=[right], args=GRPOConfig("out"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("rewards.append(1.0 if wanted is None or said == wanted else 0.0)", True),
        ("rewards.append(2.0 * (said == wanted))", True),
        ("rewards.append(float((wanted or '') in completion))", True),
        ("rewards.append(0.0 if not completion else 1.0 if not wanted else float(said == wanted))", True),
        ("rewards.append(None if wanted is None else float(said == wanted))", False),
        ("rewards.append(0.1 if wanted is None else float(said == wanted))", False),
        ("rewards.append(float(said is not None and said == wanted))", False),
        ("rewards.append(1.0 if len(completion) < 2000 else 0.0)", False),
    ],
)  # fmt: skip
def test_rows_whose_reference_is_not_read(body: str, is_found: bool, tmp_path: Path) -> None:
    """Each fourth reference has no mark; the function is called with the rows that stand beside the script."""
    rows = [
        {"prompt": f"{n} + {n}?", "solution": f"It is {'' if n % 4 == 0 else '#### '}{2 * n}"}
        for n in range(3, 15)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text, path = READER.replace("{}", body), tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    found = list(BY_NAME[FAILED](parse_module(text, str(path))).findings())
    assert [(one.severity, one.count, one.total) for one in found] == (
        [("error", 3, 12)] if is_found else []
    )
