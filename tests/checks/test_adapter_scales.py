"""The scale of a LoRA adapter: out of range by the settings of any stack, and named where a loss climbs beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.diagnose_log import diagnose
from truetune.settings.run_spec import RunSpec

RANGES = {"setting-out-of-range", "argument-out-of-range"}
LLAMA_FACTORY = """
model_name_or_path: some/model
stage: sft
do_train: true
dataset: some
template: qwen
finetuning_type: lora
lora_rank: RANK
lora_alpha: ALPHA
use_rslora: STABLE
learning_rate: RATE
bf16: true
"""
AXOLOTL = """
base_model: some/model
datasets: [{path: some/rows, type: alpaca}]
sequence_len: 2048
micro_batch_size: 2
adapter: lora
lora_r: RANK
lora_alpha: ALPHA
lora_target_linear: true
peft_use_rslora: STABLE
learning_rate: RATE
bf16: true
"""
TRL = """
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
config = LoraConfig(r=RANK, lora_alpha=ALPHA, use_rslora=STABLE, target_modules="all-linear")
args = SFTConfig("out", learning_rate=RATE, bf16=True)
SFTTrainer("some/model", args=args, train_dataset=load_dataset("some/rows"), peft_config=config).train()
"""
UNSLOTH = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
model, tok = FastLanguageModel.from_pretrained("some/model", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=RANK, lora_alpha=ALPHA, use_rslora=STABLE)
args = SFTConfig("out", learning_rate=RATE, bf16=True)
SFTTrainer(model, args=args, train_dataset=load_dataset("some/rows")).train()
"""
LOOP = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/model")
model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, use_rslora=STABLE))
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
STACKS = {
    "llama-factory": ("sft.yaml", LLAMA_FACTORY),
    "axolotl": ("config.yaml", AXOLOTL),
    "trl": ("train.py", TRL),
    "unsloth": ("train.py", UNSLOTH),
    "loop": ("train.py", LOOP),
}
HIGH = [
    (64, 256, True, 1e-4),
    (16, 512, False, 2e-4),
    (128, 512, True, 1e-4),
    # Twice the rank, as without rsLoRA.
    (256, 512, True, 2e-4),
]
USUAL = [
    (16, 32, False, 2e-4),
    (64, 16, True, 2e-4),
    (64, 128, True, 1e-4),
    (128, 256, True, 2e-4),
    (128, 256, False, 2e-4),
    (256, 256, True, 2e-5),
    (8, 64, False, 1e-4),
]


def write(folder: Path, stack: str, rank: int, alpha: int, stable: bool, rate: float) -> Path:
    name, text = STACKS[stack]
    word = str(stable) if name.endswith(".py") else str(stable).lower()
    text = text.replace("RANK", str(rank)).replace("ALPHA", str(alpha))
    text = text.replace("STABLE", word).replace("RATE", f"{rate:.6f}")
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def ranges_in(path: Path) -> list[str]:
    report = check_paths([str(path)], RunSpec())
    return [one.message for one in report.findings if one.rule in RANGES]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("values", HIGH)
def test_a_high_scale_at_a_usual_rate_is_told(
    stack: str, values: tuple[int, int, bool, float], tmp_path: Path
) -> None:
    [message] = ranges_in(write(tmp_path, stack, *values))
    assert "lora_alpha / sqrt(r)" in message if values[2] else "lora_alpha / r" in message


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("values", USUAL)
def test_published_scales_are_left_alone(
    stack: str, values: tuple[int, int, bool, float], tmp_path: Path
) -> None:
    assert not ranges_in(write(tmp_path, stack, *values))


def climbing(folder: Path, rate: float = 1e-4) -> Path:
    losses = [1.6, 1.5, 1.4, 1.35, *([8.0, 7.9, 8.1] * 14)]
    records = [
        {"current_steps": 5 * n, "loss": loss, "lr": rate, "epoch": n / 20}
        for n, loss in enumerate(losses, 1)
    ]
    text = "".join(json.dumps(one) + "\n" for one in records)
    path = folder / "trainer_log.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def climbs(report_path: Path) -> tuple[str, str]:
    [found] = [one for one in diagnose(str(report_path)).findings if one.rule == "loss-diverges"]
    return " ".join(found.evidence), found.remedy


@pytest.mark.parametrize("stack", STACKS)
def test_a_loss_that_climbs_names_the_scale_beside_it(stack: str, tmp_path: Path) -> None:
    write(tmp_path, stack, 64, 256, True, 1e-4)
    evidence, remedy = climbs(climbing(tmp_path))
    assert "lora_alpha 256 / sqrt(64) = 32" in evidence
    assert "lora_alpha=16 instead of 256" in remedy


def test_a_saved_adapter_beside_the_log_tells_its_scale(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 256, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "lora_alpha 256 / 16 = 16" in climbs(climbing(tmp_path))[0]


@pytest.mark.parametrize("stack", STACKS)
def test_a_usual_scale_is_not_blamed(stack: str, tmp_path: Path) -> None:
    write(tmp_path, stack, 16, 32, False, 1e-4)
    evidence, remedy = climbs(climbing(tmp_path))
    assert "lora_alpha" not in evidence + remedy
    assert "third of the learning rate" in remedy
    assert "float16" not in remedy or stack == "loop"


def test_adapters_of_two_runs_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, "trl", 64, 256, True, 1e-4)
    write(tmp_path, "llama-factory", 16, 32, False, 1e-4)
    assert "lora_alpha" not in " ".join(climbs(climbing(tmp_path)))


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        (1e-2, "learning_rate below 0.01 (1e-5 to 5e-5"),
        (2e-5, "a third of the learning rate: 6.7e-06"),
        (1e-6, "learning_rate below 1e-06"),
    ],
)
def test_the_rate_is_judged_without_contradiction(rate: float, says: str, tmp_path: Path) -> None:
    assert says in climbs(climbing(tmp_path, rate))[1]
