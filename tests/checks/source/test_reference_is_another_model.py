"""References that are loaded from another place than the policy; and pure bfloat16 under a launcher or a log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from peft import PeftModel, LoraConfig, get_peft_model
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer, KTOTrainer, PPOTrainer
BASE = "Qwen/Qwen2.5-7B"
SFT = "runs/sft/checkpoint-1860"
def load(name):
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
"""
LOOP = """
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
for batch in pairs:
    good, bad = policy(batch["chosen"]).logps, policy(batch["rejected"]).logps
    with torch.no_grad():
        ref_good, ref_bad = ref(batch["chosen"]).logps, ref(batch["rejected"]).logps
    loss = -logsigmoid(0.1 * ((good - ref_good) - (bad - ref_bad))).mean()
    loss.backward()
    optimizer.step()
"""
WRONG = {
    "two loads": "t = DPOTrainer(model=load(SFT), ref_model=load(BASE), args=DPOConfig('o'))",
    "by place": "t = DPOTrainer(load(SFT), load(BASE), args=DPOConfig('o'))",
    "moved": "ref = load(BASE).eval().to('cuda')\nt = KTOTrainer(load(SFT), ref, args=None)",
    "new adapter on the policy": (
        "policy = get_peft_model(load(SFT), LoraConfig())\nt = DPOTrainer(policy, load(BASE))"
    ),
    "PPO": "t = PPOTrainer(args=None, model=load(SFT), ref_model=load(BASE))",
    "own loop": f"policy = load(SFT)\nref = load(BASE).eval()\n{LOOP}",
}
RIGHT = {
    "same name": "t = DPOTrainer(model=load(SFT), ref_model=load(SFT), args=DPOConfig('o'))",
    "same folder": "t = DPOTrainer(load('./sft/'), load('sft'), args=DPOConfig('o'))",
    "none": "t = DPOTrainer(load(SFT), None, args=DPOConfig('o'))",
    "merged adapter": (
        "policy = PeftModel.from_pretrained(load(BASE), 'sft').merge_and_unload()\n"
        "t = DPOTrainer(policy, load('runs/sft-merged'))"
    ),
    "continued": "t = DPOTrainer(load('runs/dpo-1/checkpoint-50'), load(SFT))",
    "weights put in": (
        "policy = load(BASE)\npolicy.load_state_dict(torch.load('sft.pt'))\n"
        "t = DPOTrainer(policy, load('runs/sft'))"
    ),
    "name at run time": "import sys\nt = DPOTrainer(load(sys.argv[1]), load(BASE))",
    "own loop": f"policy = load(SFT)\nref = load(SFT).eval()\n{LOOP}",
    "teacher": (
        "student, teacher = load(SFT), load(BASE)\n"
        "with torch.no_grad():\n    out = teacher(x)\nstudent(x).loss.backward()"
    ),
}


def count_findings(text: str) -> int:
    rule = find_rule("reference-is-another-model")
    return len(run_rule(parse_module(HEAD + text, "dpo.py"), rule).findings)


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_references_of_another_model(code: str) -> None:
    assert count_findings(code) == 1


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_references_that_may_be_right(code: str) -> None:
    assert count_findings(code) == 0


SCRIPT = """{head}
import torch
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
model = AutoModelForCausalLM.from_pretrained("sft", dtype=torch.bfloat16)
args = DPOConfig("out", learning_rate=5e-7, bf16=True)
trainer = DPOTrainer(model, None, args=args, train_dataset=rows)
trainer.train()
"""


def is_rounding_told(folder: Path, head: str, rewards: list[float] | None = None) -> bool:
    (folder / "dpo.py").write_text(SCRIPT.format(head=head), encoding="utf-8")
    if rewards is not None:
        lines = [
            json.dumps(
                {"step": n + 1, "loss": 0.69, "rewards/chosen": 0.0, "rewards/rejected": one}
            )
            for n, one in enumerate(rewards)
        ]
        (folder / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = truetune.check(str(folder))
    return "CFG012" in {one.code for one in report.findings}


@pytest.mark.parametrize(
    ("head", "is_told"),
    [
        ('"""DPO."""', True),
        ("# python dpo.py", True),
        ("# torchrun --nproc-per-node 4 dpo.py", True),
        ("# accelerate launch --config_file ds_z2.yaml other.py", True),
        ('"""Run: accelerate launch --config_file ds_z2.yaml dpo.py"""', False),
        ("# deepspeed --num_gpus 4 dpo.py", False),
        ("# torchrun dpo.py --deepspeed z2.json", False),
    ],
)
def test_a_launch_in_words_may_keep_float32_weights(
    head: str, is_told: bool, tmp_path: Path
) -> None:
    assert is_rounding_told(tmp_path, head) == is_told


@pytest.mark.parametrize(
    ("rewards", "is_told"),
    [
        ([0.0, -0.1, -0.5, -1.0, -1.5, -1.9, -2.4, -2.6, -2.7, -2.7, -2.8, -2.8], False),
        ([0.0, 0.01, -0.01, 0.02, 0.0, -0.02, 0.01, 0.0, 0.01, -0.01, 0.0, 0.01], True),
        ([0.0, -3.0, -3.1], True),
    ],
)
def test_a_log_of_moving_weights_refutes_lost_updates(
    rewards: list[float], is_told: bool, tmp_path: Path
) -> None:
    assert is_rounding_told(tmp_path, '"""DPO."""', rewards) == is_told
