"""Rows of uneven length whose batches are mostly padding, by the settings of a stack and by loops of one's own."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml

import truetune
from truetune.checks.estimate_padding_share_of_batches import estimate_padded_batches

UNEVEN = [3_000 if number % 15 == 0 else 20 for number in range(150)]
EVEN = [60 + number % 40 for number in range(150)]
LLAMA_FACTORY = {
    "model_name_or_path": "org/m", "stage": "sft", "do_train": True, "finetuning_type": "lora", "dataset": "d",
    "dataset_dir": ".", "template": "qwen", "cutoff_len": 8192, "per_device_train_batch_size": 16,
    "learning_rate": 1e-4, "output_dir": "o",
}  # fmt: skip
AXOLOTL = {
    "base_model": "org/m", "datasets": [{"path": "rows.jsonl", "type": "chat_template"}], "adapter": "lora",
    "lora_target_linear": True, "micro_batch_size": 8, "num_epochs": 1, "sequence_len": 8192,
    "sample_packing": False, "learning_rate": 1e-4,
}  # fmt: skip
TRL_FILE = {
    "model_name_or_path": "org/m", "datasets": [{"path": "json", "data_files": "rows.jsonl"}],
    "learning_rate": 2e-5, "max_length": 8192, "per_device_train_batch_size": 16, "output_dir": "o",
}  # fmt: skip
SFT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="rows.jsonl", split="train")
args = SFTConfig("o", max_length=8192, per_device_train_batch_size=16{more})
SFTTrainer("org/m", args=args, train_dataset=rows).train()
"""
TRAINER = """
from datasets import load_dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer,
                          TrainingArguments)
tok = AutoTokenizer.from_pretrained("org/m")
model = AutoModelForCausalLM.from_pretrained("org/m")
rows = load_dataset("json", data_files="texts.jsonl", split="train")
rows = rows.map(lambda r: tok(r["text"], truncation=True, max_length={limit}), remove_columns=["text"])
args = TrainingArguments("o", per_device_train_batch_size=16{more})
Trainer(model, args, train_dataset=rows, data_collator=DataCollatorForLanguageModeling(tok, mlm=False)).train()
"""
LOOP = """
import json, torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("org/m")
model = AutoModelForCausalLM.from_pretrained("org/m")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
with open("texts.jsonl") as f:
    rows = [json.loads(line) for line in f]
def collate(items):
    b = tok([i["text"] for i in items], padding=True, return_tensors="pt"{cut})
    b["labels"] = b["input_ids"].masked_fill(b["attention_mask"] == 0, -100)
    return b
loader = DataLoader(rows, batch_size={batch}, {order}, collate_fn=collate)
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
"""
OWN_SET = """
import json, torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from accelerate import Accelerator
tok = AutoTokenizer.from_pretrained("org/m")
class Texts(Dataset):
    def __init__(self, path):
        self.rows = [tok(json.loads(line)["text"])["input_ids"] for line in open(path)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return torch.tensor(self.rows[i])
def collate(items):
    ids = pad_sequence(items, batch_first=True)
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}
accelerator = Accelerator(mixed_precision="bf16")
model = AutoModelForCausalLM.from_pretrained("org/m")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, opt, loader = accelerator.prepare(
    model, opt, DataLoader(Texts("texts.jsonl"), batch_size=16, shuffle=True, collate_fn=collate))
for batch in loader:
    accelerator.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""
RULES = ["rows-of-uneven-length-padded", "loader-pads-uneven-rows"]


def loop(cut: str = "", batch: int = 16, order: str = "shuffle=True") -> str:
    return LOOP.replace("{cut}", cut).replace("{batch}", str(batch)).replace("{order}", order)


def found(folder: Path, run: str | dict[str, object], words: list[int]) -> list[str]:
    chats = [
        {"messages": [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so it " * n}]}
        for n in words
    ]  # fmt: skip
    texts = [{"text": "so it " * n} for n in words]
    for name, rows in (("rows", chats), ("texts", texts)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    described = {"d": {"file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"},
                       "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
                                "assistant_tag": "assistant"}}}  # fmt: skip
    (folder / "dataset_info.json").write_text(json.dumps(described), encoding="utf-8")
    path = folder / ("train.py" if isinstance(run, str) else "run.yaml")
    if not isinstance(run, str) and "dataset_dir" in run:
        run = run | {"dataset_dir": str(folder)}
    path.write_text(run if isinstance(run, str) else yaml.safe_dump(run), encoding="utf-8")
    report = truetune.check([str(path)], select=RULES, allow_unjudged=True)
    return [finding.message for finding in report.findings]


WASTEFUL: dict[str, str | dict[str, object]] = {
    "llama-factory": LLAMA_FACTORY,
    "axolotl": AXOLOTL,
    "trl file": TRL_FILE,
    "trl script": SFT.replace("{more}", ""),
    "trainer": TRAINER.replace("{more}", "").replace("{limit}", "8192"),
    "loop": loop(),
    "own data set": OWN_SET,
}
SOUND: dict[str, str | dict[str, object]] = {
    "neat packing": LLAMA_FACTORY | {"neat_packing": True},
    "packing": LLAMA_FACTORY | {"packing": True},
    "grouped": LLAMA_FACTORY | {"group_by_length": True},
    "grouped since 5": LLAMA_FACTORY | {"train_sampling_strategy": "group_by_length"},
    "one row": LLAMA_FACTORY | {"per_device_train_batch_size": 1},
    "cut short": LLAMA_FACTORY | {"cutoff_len": 128},
    "sample packing": AXOLOTL | {"sample_packing": True},
    "axolotl grouped": AXOLOTL | {"group_by_length": True},
    "trl packing": SFT.replace("{more}", ", packing=True"),
    "padding free": SFT.replace("{more}", ", padding_free=True"),
    "trainer grouped": TRAINER.replace("{more}", ", group_by_length=True").replace("{limit}", "8192"),
    "trainer cut": TRAINER.replace("{more}", "").replace("{limit}", "128"),
    "loop of one": loop(batch=1),
    "sampler": loop(order="sampler=my_sampler"),
    "in order": loop(order="shuffle=False"),
    "loop cut": loop(cut=", truncation=True, max_length=128"),
    "flattened": SFT.replace("{more}", "") + "\nfrom transformers import DataCollatorWithFlattening\n",
    "filtered": SFT.replace(
        "{more}", "").replace('split="train")', 'split="train").filter(lambda r: len(str(r)) < 2000)'),
}  # fmt: skip


@pytest.mark.parametrize("name", WASTEFUL)
def test_batches_that_are_mostly_pads(tmp_path: Path, name: str) -> None:
    (message,) = found(tmp_path, WASTEFUL[name], UNEVEN)
    assert "of each batch is padding" in message


@pytest.mark.parametrize("name", WASTEFUL)
def test_rows_of_like_length(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, WASTEFUL[name], EVEN) == []


@pytest.mark.parametrize("name", SOUND)
def test_pads_that_are_not_there(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, SOUND[name], UNEVEN) == []


def test_the_share_is_that_of_shuffled_batches() -> None:
    lengths = [20 if number % 15 else 3_000 for number in range(300)]
    rng = random.Random(1)
    whole = sum(16 * max(rng.sample(lengths, 16)) for _ in range(4_000))
    drawn = 1 - 4_000 * 16 * sum(lengths) / len(lengths) / whole
    padded = estimate_padded_batches(lengths, 16, None)
    assert padded is not None
    assert abs(padded.share - drawn) < 0.02
    assert padded.long_rows == 20
