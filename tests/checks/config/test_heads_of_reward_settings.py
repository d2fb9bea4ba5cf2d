"""Settings of reward models by LoRA: the task type decides whether the head is trained and saved (CFG218)."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

COMMAND = (
    "trl {method} --model_name_or_path {model} --dataset_name some/rows --max_length 2048"
    " --learning_rate 1e-4 --output_dir out {more}\n"
)
LORA = "--use_peft --lora_r 16 "
CHAT = "Qwen/Qwen2.5-3B-Instruct"
CASES = {
    "by default": ("reward", CHAT, LORA, True),
    "named": ("reward", CHAT, LORA + "--lora_task_type CAUSAL_LM", True),
    "other modules saved": ("reward", CHAT, LORA + "--lora_modules_to_save embed_tokens", True),
    "a base": ("reward", "meta-llama/Llama-3.2-3B", LORA, True),
    "by the module": ("scripts.reward", CHAT, LORA, True),
    "a classifier's task": ("reward", CHAT, LORA + "--lora_task_type SEQ_CLS", False),
    "the head is saved": ("reward", CHAT, LORA + "--lora_modules_to_save score", False),
    "all weights": ("reward", CHAT, "", False),
    "a reward model goes on": ("reward", "Skywork/Skywork-Reward-Llama-3.1-8B", LORA, False),
    "preferences": ("dpo", CHAT, LORA, False),
}


@pytest.mark.parametrize("name", CASES)
def test_head_of_a_reward_model(name: str, tmp_path: Path) -> None:
    method, model, more, is_found = CASES[name]
    text = COMMAND.format(method=method, model=model, more=more)
    if "." in method:
        text = text.replace("trl ", "accelerate launch -m trl.")
    (tmp_path / "train.sh").write_text(text, encoding="utf-8")
    rules = [one.rule for one in check_paths([str(tmp_path)], RunSpec()).findings]
    assert ("reward-settings-leave-head-out" in rules) is is_found


def test_the_adapter_of_a_script_is_judged_in_its_code(tmp_path: Path) -> None:
    path = tmp_path / "train_rm.py"
    path.write_text(
        f"""
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification
from trl import RewardConfig, RewardTrainer
model = AutoModelForSequenceClassification.from_pretrained("{CHAT}", num_labels=1)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, task_type="SEQ_CLS"))
args = RewardConfig(output_dir="out", learning_rate=1e-4)
RewardTrainer(model=model, args=args, train_dataset=rows).train()
""",
        encoding="utf-8",
    )
    rule = "reward-settings-leave-head-out"
    assert list(check_paths([str(path)], RunSpec(select=(rule,))).findings) == []
