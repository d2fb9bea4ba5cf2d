"""What the output says is trained, and what a flat loss is then said to mean."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

LOSSES = "".join(
    f"{{'loss': {2.28 + n % 3 * 0.02}, 'grad_norm': 0.12, 'learning_rate': 1.9e-05, 'epoch': {n / 10}}}\n"
    for n in range(1, 61)
)
FROZEN = """from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("me/my-model")
for name, weight in model.named_parameters():
    weight.requires_grad = "layers.20." in name
Trainer(model=model, train_dataset=rows).train()
"""


def findings(folder: Path, printed: str, script: str = "", losses: str = LOSSES) -> dict[str, str]:
    (folder / "train.log").write_text(printed + "\n" + losses, encoding="utf-8")
    if script:
        (folder / "train.py").write_text(script, encoding="utf-8")
    report = check_paths([str(folder)], RunSpec())
    return {one.rule: f"{one.message} {one.remedy}" for one in report.findings}


@pytest.mark.parametrize(
    "printed",
    [
        "trainable params: 3,584 || all params: 7,615,616,512 || trainable%: 0.0000",
        "Trainable parameters = 4,096/8,030,261,248 (0.00% trained)",
        "trainable: 896 / 494032768",
        "Trainable params: 8192 of 8030261248",
        "trainable params: 2048 || all params: 1,235,814,400 || trainable%: 0.00016",
    ],
)
def test_a_norm_or_two(tmp_path: Path, printed: str) -> None:
    found = findings(tmp_path, printed)
    assert "almost-nothing-is-trained" in found
    assert "flat-loss" not in found


@pytest.mark.parametrize(
    ("printed", "losses"),
    [
        # LoRA of rank 1 on two projections, (IA)3, biases, soft prompts, all weights
        ("trainable params: 524,288 || all params: 8,030,785,536 || trainable%: 0.0065", LOSSES),
        ("trainable params: 129,024 || all params: 7,615,616,512 || trainable%: 0.0017", LOSSES),
        ("trainable params: 32,768 || all params: 8,030,294,016 || trainable%: 0.0004", LOSSES),
        ("trainable params: 7,615,616,512 || all params: 7,615,616,512 || trainable%: 100", LOSSES),
        # a head of two classes
        (
            "trainable params: 1,538 || all params: 124,647,170 || trainable%: 0.0012",
            LOSSES + "{'eval_loss': 0.6, 'eval_accuracy': 0.7, 'epoch': 6.0}\n",
        ),
        ("trainable params: 64 || all params: 102,400 || trainable%: 0.06", LOSSES),
    ],
)
def test_small_parts_that_are_meant(tmp_path: Path, printed: str, losses: str) -> None:
    assert "almost-nothing-is-trained" not in findings(tmp_path, printed, losses=losses)


PROMPT = """from peft import PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("me/my-model")
model = get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8))
Trainer(model=model, train_dataset=rows).train()
"""
OF_A_PROMPT = "trainable params: 16,384 || all params: 30,532,139,008 || trainable%: 0.0001"
"""Eight vectors of a mixture of experts, whose width is small beside its parameters"""


def test_a_prompt_is_few_vectors_on_purpose(tmp_path: Path) -> None:
    assert "almost-nothing-is-trained" not in findings(tmp_path, OF_A_PROMPT, PROMPT)


@pytest.mark.parametrize(("kind", "is_found"), [("PROMPT_TUNING", False), ("LORA", True)])
def test_the_saved_adapter_says_what_was_trained(tmp_path: Path, kind: str, is_found: bool) -> None:
    (tmp_path / "adapter_config.json").write_text(f'{{"peft_type": "{kind}"}}')
    (tmp_path / "train.log").write_text(OF_A_PROMPT + "\n" + LOSSES)
    found = truetune.diagnose(str(tmp_path), select=["almost-nothing-is-trained"]).findings
    assert bool(found) is is_found


def test_a_script_that_freezes_trains_no_adapter(tmp_path: Path) -> None:
    printed = "trainable params: 233,057,792 || all params: 7,615,616,512 || trainable%: 3.0603"
    text = findings(tmp_path, printed, FROZEN)["flat-loss"]
    assert "raise the learning rate" not in text
    assert "lora_alpha" not in text
    assert "train.py:4 selects them" in text


def test_an_adapter_is_asked_for_its_rate(tmp_path: Path) -> None:
    printed = "trainable params: 18,464,768 || all params: 1,562,179,072 || trainable%: 1.1820"
    text = findings(tmp_path, printed)["flat-loss"]
    assert "raise the learning rate" in text
    assert "lora_alpha" in text
