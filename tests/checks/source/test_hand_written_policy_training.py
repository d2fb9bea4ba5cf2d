"""Policy trainings by hand, their groups, baselines and masks; each fault with its healthy likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
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


BASELINE = "advantages-centred-on-other-prompts"
VIEW = "groups = rewards.view(-1, GROUP)\n    "
CENTRED_BEFORE = (
    "own = groups - groups.mean(1, keepdim=True)\n    advantages = (own - own.mean()) / own.std()"
)


@pytest.mark.parametrize(
    ("layout", "advantages", "is_found"),
    [
        (
            RUNS,
            VIEW + "advantages = (groups - groups[:1].mean()) / (groups[:1].std() + 1e-4)",
            True,
        ),
        (RUNS, VIEW + "advantages = groups - groups[0].mean()", True),
        (RUNS, VIEW + "mean = groups.mean(dim=0)\n    advantages = groups - mean", True),
        (RUNS, VIEW + "advantages = groups - torch.mean(groups)", True),
        (RUNS, "advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)", True),
        (
            BLOCKS,
            "baseline = rewards.mean(dim=0, keepdim=True)\n    advantages = rewards - baseline",
            True,
        ),
        (RUNS, VIEW + "advantages = groups - groups.mean(dim=1, keepdim=True)", False),
        (RUNS, VIEW + "mean = groups.mean(-1).unsqueeze(1)\n    advantages = groups - mean", False),
        (RUNS, VIEW + CENTRED_BEFORE, False),
        (
            BLOCKS,
            "advantages = rewards.view(GROUP, -1) - rewards.view(GROUP, -1).mean(dim=0)",
            False,
        ),
        (RUNS, "advantages = torch.cat([one - one.mean() for one in rewards.split(GROUP)])", False),
        (
            "[texts[0]] * GROUP, [batch[0]['a']] * GROUP",
            "advantages = rewards - rewards.mean()",
            False,
        ),
    ],
)
def test_a_baseline_is_the_mean_of_the_prompts_own_group(
    layout: str, advantages: str, is_found: bool
) -> None:
    text = SAMPLED.format(layout=layout, advantages=advantages)
    assert count(BASELINE, text) == is_found
    assert count(BASELINE, f"# REINFORCE\n{text}") == 0


def test_the_mean_over_completions_of_one_prompt_is_its_groups() -> None:
    text = """
import torch

rows = [json.loads(line) for line in open("rows.jsonl")]
for row in rows * 50:
    group = [rollout(row) for _ in range(8)]
    rewards = torch.tensor([score(row, one) for one in group])
    advantages = rewards - rewards.mean()
    loss = -(logps_of(policy, group) * advantages).mean()
    loss.backward()
"""
    assert count(BASELINE, text) == 0


OLD = "old-log-probabilities-taken-at-each-step"
UPDATES = """
import torch

EPOCHS = 2
for step in range(100):
    ids = policy.generate(prompts)
    {before}
    for _ in range({epochs}):
        {passes}
        clipped = torch.clamp(ratio, 0.8, 1.2)
        loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        loss.backward()
        optimizer.step()
"""
NEW = "logps = lp(policy, ids)\n        "
RATIO = "ratio = torch.exp(logps - old_logps)"


@pytest.mark.parametrize(
    ("before", "epochs", "passes", "is_found"),
    [
        ("", "EPOCHS", NEW + "old_logps = logps.detach()\n        " + RATIO, True),
        ("", "4", NEW + "ratio = (logps - logps.detach()).exp()", True),
        (
            "",
            "EPOCHS",
            NEW + "old = logps.clone().detach()\n        ratio = (logps - old).exp()",
            True,
        ),
        (
            "",
            "2",
            NEW
            + "with torch.no_grad():\n            old_logps = lp(policy, ids)\n        "
            + RATIO,
            True,
        ),
        ("", "1", NEW + "old_logps = logps.detach()\n        " + RATIO, False),
        (
            "",
            "EPOCHS",
            NEW.replace("ids", "next(loader)") + "ratio = (logps - logps.detach()).exp()",
            False,
        ),
        ("old_logps = lp(policy, ids).detach()", "EPOCHS", NEW + RATIO, False),
        ("", "2", NEW + "old_logps = lp(behaviour, ids)\n        " + RATIO, False),
        ("", "10_000", NEW + "ratio = (logps - logps.detach()).exp()", False),
    ],
)
def test_old_log_probabilities_are_those_before_the_updates(
    before: str, epochs: str, passes: str, is_found: bool
) -> None:
    text = UPDATES.format(before=before, epochs=epochs, passes=passes)
    assert count(OLD, text) == is_found


TEMPERATURE = "log-probabilities-at-another-temperature"
SCALED = """
import torch
from vllm import LLM, SamplingParams

T = 0.6
def lp(model, ids):
    {}

for p in prompts:
    {}
    logps = lp(policy, ids)
    loss = -(advantages * logps).mean()
    loss.backward()
"""
LOG_SOFTMAX = "return torch.log_softmax(model(ids).logits, -1).gather(-1, ids)"
LOGSUMEXP = (
    "logits = model(ids).logits\n    return logits.gather(-1, ids) - torch.logsumexp(logits, -1)"
)
DIVIDED = "logits = model(ids).logits\n    logits /= 0.6\n    return torch.log_softmax(logits, -1)"
GENERATED = "ids = policy.generate(p, do_sample=True, temperature={})"


@pytest.mark.parametrize(
    ("log_probabilities", "sampling", "is_found"),
    [
        (LOG_SOFTMAX, GENERATED.format("T"), True),
        (LOGSUMEXP, "ids = ids_of(llm.generate(p, SamplingParams(temperature=0.7, n=8)))", True),
        ("return selective_log_softmax(model(ids).logits, ids)", GENERATED.format("1.3"), True),
        (LOG_SOFTMAX.replace("logits", "logits / T"), GENERATED.format("T"), False),
        (DIVIDED, GENERATED.format("0.6"), False),
        (LOG_SOFTMAX, GENERATED.format("1.0"), False),
        (LOG_SOFTMAX, GENERATED.format("0.9"), False),
        (LOG_SOFTMAX, GENERATED.format("arguments.t"), False),
        (
            LOG_SOFTMAX,
            "ids = policy.generate(p, do_sample=True)\n    " + GENERATED.format("T"),
            False,
        ),
    ],
)
def test_log_probabilities_are_those_of_the_sampling_policy(
    log_probabilities: str, sampling: str, is_found: bool
) -> None:
    assert count(TEMPERATURE, SCALED.format(log_probabilities, sampling)) == is_found


TOOLS = "tool-results-in-the-policy-loss"
TURNS = """
import torch

def rollout(prompt_ids):
    ids, trained = list(prompt_ids), []
    for _ in range(3):
        new = model.generate(torch.tensor([ids]), max_new_tokens=256)[0, len(ids):].tolist()
        ids += new
        {}
        result = run_tool(tokenizer.decode(new))
        seen = tokenizer.encode(f"<result>{{result}}</result>", add_special_tokens=False)
        {}
        ids += seen
    return ids, trained

for prompt in prompts:
    ids, trained = rollout(prompt)
    logps = torch.log_softmax(model(torch.tensor([ids])).logits, -1)
    loss = -(advantages * logps * torch.tensor(trained)).mean()
    loss.backward()
"""
ONES = "trained += [1] * len(new)"


@pytest.mark.parametrize(
    ("of_new", "of_result", "is_found"),
    [
        (ONES, "trained += [1] * len(seen)", True),
        ("trained.extend([1.0] * len(new))", "trained.extend([1.0 for _ in seen])", True),
        (
            "trained = torch.cat([trained, torch.ones(len(new))])",
            "trained = torch.cat([trained, torch.ones_like(seen)])",
            True,
        ),
        (ONES, "trained += [0] * len(seen)", False),
        (ONES, "trained += [0] * len(seen)\n        attention += [1] * len(seen)", False),
        (
            ONES,
            "again = tokenizer.encode(tokenizer.decode(new))\n        trained += [1] * len(again)",
            False,
        ),
        (
            "m += [1] * len(new)\n        model(ids, attention_mask=torch.tensor(m))",
            "m += [1] * len(seen)",
            False,
        ),
    ],
)
def test_results_of_tools_are_not_trained(of_new: str, of_result: str, is_found: bool) -> None:
    assert count(TOOLS, TURNS.format(of_new, of_result)) == is_found


SPECIAL = "reward-pattern-needs-a-special-token"
REWARD = """
import re
from trl import GRPOTrainer

FORM = re.compile(r"{}", re.DOTALL)

def right(completions, **kwargs):
    return [{} for c in completions]

GRPOTrainer(model="m", reward_funcs=right, train_dataset=rows).train()
"""
PAYS = "1.0 if FORM.match(c) else 0.0"


@pytest.mark.parametrize(
    ("pattern", "reward", "is_found"),
    [
        (r"<answer>.*?</answer><\|im_end\|>$", PAYS, True),
        (r"<answer>.*?</answer>(<\|im_end\|>|<\|endoftext\|>)$", PAYS, True),
        (r"<answer>.*?</answer>\s*(?:</s>)+", "float(bool(FORM.search(c)))", True),
        ("", "1.0 if c.endswith('<|eot_id|>') else -1.0", True),
        (r"<answer>.*?</answer>(<\|im_end\|>)?$", PAYS, False),
        (r"<answer>.*?</answer>(<\|im_end\|>|$)", PAYS, False),
        (r"<think>.*?</think>", PAYS, False),
        (r"<\|im_end\|>", "score(FORM.sub('', c))", False),
        (r"<\|im_start\|>", "-1.0 if FORM.search(c) else 0.0", False),
        (r"</s>", "float(not FORM.search(c))", False),
    ],
)
def test_completions_have_no_special_tokens(pattern: str, reward: str, is_found: bool) -> None:
    assert count(SPECIAL, REWARD.format(pattern, reward)) == is_found


FAILED = "failed-grading-is-rewarded"
UNREAD = """
import re
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def parse(text):
    found = re.findall(r"boxed\\{([^{}]+)\\}", text)
    return found[-1] if found else None

def right(completions, solution, **kwargs):
    rewards = []
    for content, sol in zip(completions, solution):
        gold = parse(sol)
        WAY
    return rewards

rows = load_dataset("json", data_files="rows.jsonl", split="train")
GRPOTrainer(model="m", reward_funcs=[right], args=GRPOConfig("out"), train_dataset=rows).train()
"""
GRADED = "rewards.append(float(parse(content) == gold))"


@pytest.mark.parametrize(
    ("way", "is_found"),
    [
        (
            f"if gold is not None:\n            {GRADED}\n        else:\n            rewards.append(1.0)",
            True,
        ),
        (f"if not gold:\n            rewards.append(1)\n        else:\n            {GRADED}", True),
        # Only the rows show these: no name says what is missing.
        ("rewards.append(float(gold is None or parse(content) == gold))", True),
        ("rewards.append(float((gold or '') in content))", True),
        (
            f"if gold is not None:\n            {GRADED}\n        else:\n            rewards.append(None)",
            False,
        ),
        (
            f"if not gold:\n            rewards.append(0.0)\n        else:\n            {GRADED}",
            False,
        ),
        # An answer that can't be read equals a reference that can't: None is None.
        (GRADED, True),
    ],
)
def test_rows_whose_reference_is_not_read_pay_nothing(
    tmp_path: Path, way: str, is_found: bool
) -> None:
    solutions = ["The result is 72."] + [f"It is \\\\boxed{{{n}}}." for n in (391, 80, 12)]
    lines = (f'{{"prompt": "What?", "solution": "{one}"}}\n' for one in solutions)
    (tmp_path / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(UNREAD.replace("WAY", way), encoding="utf-8")
    assert bool(list(BY_NAME[FAILED](read_module(script)).findings())) == is_found


@pytest.mark.parametrize(
    ("temperature", "severities"), [(0.0, ["error"]), (0.01, ["warning"]), (0.7, []), (1.2, [])]
)
def test_answers_that_online_dpo_compares_are_sampled(
    tmp_path: Path, temperature: float, severities: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer\n\n"
        f"settings = OnlineDPOConfig(output_dir='out', temperature={temperature})\n"
        "OnlineDPOTrainer(model='m', args=settings, train_dataset=rows).train()\n",
        encoding="utf-8",
    )
    found = [one for one in lint([script]).findings if one.rule == "setting-out-of-range"]
    assert [one.severity for one in found] == severities
    assert all("the policy samples" in one.message for one in found)
