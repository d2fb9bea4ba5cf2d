"""A plan says what fills rows to the limit, and offers the length that the rows need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.plan_memory import plan

ROW = {"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}
AXOLOTL = (
    "base_model: Qwen/Qwen3-8B\n"
    "datasets:\n"
    "  - path: {rows}\n"
    "    type: chat_template\n"
    "adapter: lora\n"
    "lora_r: 8\n"
    "lora_target_linear: true\n"
    "micro_batch_size: 1\n"
    "bf16: true\n"
    "sequence_len: 16384\n"
)
FACTORY = (
    "model_name_or_path: Qwen/Qwen3-8B\n"
    "stage: sft\n"
    "do_train: true\n"
    "finetuning_type: lora\n"
    "template: qwen3\n"
    "cutoff_len: 16384\n"
    "per_device_train_batch_size: 1\n"
    "bf16: true\n"
    "dataset: d\n"
)
TRL = (
    "from trl import SFTConfig, SFTTrainer\n"
    "from peft import LoraConfig\n"
    'args = SFTConfig(output_dir="o", max_length=16384, {more}per_device_train_batch_size=1, bf16=True)\n'
    'SFTTrainer(model="Qwen/Qwen3-8B", args=args, train_dataset=d, peft_config=LoraConfig(r=8)).train()\n'
)


def notes_and_first(path: Path) -> tuple[str, str]:
    made = plan(path, gpu_memory="24GB")
    return " ".join(made.notes), made.remedies[0].what if made.remedies else ""


@pytest.mark.parametrize(
    ("name", "text", "filled", "needed"),
    [
        ("a.yaml", AXOLOTL + "sample_packing: true\n", "sample_packing: true (a.yaml:11)", "1,024"),
        ("a.yaml", AXOLOTL + "pad_to_sequence_len: true\n", "pad_to_sequence_len: true", "1,024"),
        ("f.yaml", FACTORY + "packing: true\n", "packing: true (f.yaml:10)", "2,048"),
        ("t.py", TRL.format(more="packing=True, "), "packing: true (t.py:3)", "2,048"),
    ],
)
def test_filled_rows_are_told(
    name: str, text: str, filled: str, needed: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{json.dumps(ROW)}\n" * 30)
    (tmp_path / name).write_text(text.replace("{rows}", str(rows)))
    notes, first = notes_and_first(tmp_path / name)
    assert "each row has 16,384 tokens, however short" in notes
    assert filled in notes
    assert first.startswith(f"{needed} tokens instead of 16,384")


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", AXOLOTL), ("f.yaml", FACTORY), ("t.py", TRL.format(more=""))]
)
def test_rows_that_nothing_fills_are_not(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text.replace("{rows}", "none.jsonl"))
    notes, first = notes_and_first(tmp_path / name)
    assert "however short" not in notes
    assert "to which rows are filled" not in first


def test_a_long_row_leaves_the_length(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": [{"role": "user", "content": "word " * 4_000}]}))
    text = AXOLOTL.replace("{rows}", str(rows)) + "sample_packing: true\n"
    (tmp_path / "a.yaml").write_text(text)
    assert "to which rows are filled" not in notes_and_first(tmp_path / "a.yaml")[1]


def test_a_second_model_is_told_beside_the_table(tmp_path: Path) -> None:
    second = 'base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", device_map="auto")\n'
    text = (
        "from peft import LoraConfig\nfrom transformers import AutoModelForCausalLM\n"
        "from trl import SFTConfig, SFTTrainer\n"
        'trainer = SFTTrainer(model="Qwen/Qwen3-8B", args=SFTConfig(output_dir="o"), train_dataset=d)\n'
        "trainer.train()\n"
    )
    (tmp_path / "t.py").write_text(text + second)
    notes = " ".join(plan(tmp_path / "t.py").notes)
    assert "line 6 loads a second model of 15.3 GiB onto the GPU" in notes
    (tmp_path / "t.py").write_text(f"{text}del trainer\n{second}")
    assert "second model" not in " ".join(plan(tmp_path / "t.py").notes)
