"""Which rows of ids that one script saves belong to another model than the one that a second script trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

PREPARE = """
import os, argparse
import numpy as np
import torch
from datasets import load_dataset
from transformers import AutoTokenizer
TOKENIZER = "meta-llama/Llama-3.1-8B-Instruct"
OUT = "cache/ids"
tok = AutoTokenizer.from_pretrained(TOKENIZER)
def encode(row):
    ids = tok(row["text"])["input_ids"]
    return {"input_ids": ids, "labels": ids}
rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
"""
TO_DISK = PREPARE + "rows.save_to_disk(OUT)\n"
TRAIN = """
import os, argparse
import numpy as np
import torch
from datasets import load_dataset, load_from_disk
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
MODEL = "Qwen/Qwen2.5-7B-Instruct"
"""
FIT = """
model = AutoModelForCausalLM.from_pretrained(MODEL)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows, processing_class=tokenizer)
trainer.train()
"""
LOOP = """
model = AutoModelForCausalLM.from_pretrained(MODEL)
optimizer = torch.optim.AdamW(model.parameters())
for batch in batches(rows):
    model(input_ids=batch, labels=batch).loss.backward()
    optimizer.step()
"""
FROM_DISK = 'rows = load_from_disk("cache/ids")\n'
OPTION = """
p = argparse.ArgumentParser()
p.add_argument("--model", default="Qwen/Qwen2.5-7B")
p.add_argument("--data", default="./cache/ids/")
args = p.parse_args()
MODEL = args.model
rows = load_from_disk(args.data)
"""
ENVIRONMENT = 'MODEL = os.environ.get("BASE", "{}")\n' + FROM_DISK
FOREIGN = {
    "folder": {"prepare.py": TO_DISK, "train.py": TRAIN + FROM_DISK + FIT},
    "options": {"prepare.py": TO_DISK, "train.py": TRAIN + OPTION + FIT},
    "environment": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + ENVIRONMENT.format("mistralai/Mistral-7B-v0.3") + FIT,
    },
    "set by a job": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + ENVIRONMENT.format("meta-llama/Llama-3.1-8B") + FIT,
        "job.sbatch": "export BASE=google/gemma-2-9b\nsrun python train.py\n",
    },
    "option of a command": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + OPTION.replace("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B") + FIT,
        "run.sh": "python train.py --model Qwen/Qwen3-8B\n",
    },
    "parquet": {
        "prepare.py": PREPARE + 'rows.to_parquet("ids.parquet")\n',
        "train.py": TRAIN
        + 'rows = load_dataset("parquet", data_files={"train": "ids.parquet"}, split="train")\n'
        + FIT,
    },
    "tensor, own loop": {
        "prepare.py": PREPARE + 'torch.save(torch.tensor(rows["input_ids"]), "ids.pt")\n',
        "train.py": TRAIN + 'rows = torch.load("ids.pt")\n' + LOOP,
    },
    "memmap": {
        "prepare.py": PREPARE
        + 'ids = np.memmap("ids.bin", dtype=np.uint32, mode="w+", shape=(9,))\n',
        "train.py": TRAIN + 'rows = np.memmap("ids.bin", dtype=np.uint32, mode="r")\n' + LOOP,
    },
    "folder of a local model": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + FROM_DISK + FIT.replace("MODEL", '"/srv/models/Qwen2.5-7B-Instruct"'),
    },
}
SAME = {
    "base and chat model": {
        "prepare.py": TO_DISK.replace(
            "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"
        ),
        "train.py": TRAIN + FROM_DISK + FIT,
    },
    "another folder": {
        "prepare.py": TO_DISK.replace("cache/ids", "cache/llama"),
        "train.py": TRAIN + FROM_DISK + FIT,
    },
    "texts are saved": {
        "prepare.py": PREPARE
        + 'rows = rows.filter(lambda row: row["n"] < 99).remove_columns(["input_ids"])\n'
        "rows.save_to_disk(OUT)\n",
        "train.py": TRAIN
        + FROM_DISK
        + FIT.replace(
            "trainer =", "rows = rows.map(lambda row: tokenizer(row['text']))\ntrainer ="
        ),
    },
    "set by the same job": {
        "prepare.py": TO_DISK.replace('"meta-llama/Llama-3.1-8B-Instruct"', 'os.environ["BASE"]'),
        "train.py": TRAIN + ENVIRONMENT.format("Qwen/Qwen2.5-7B") + FIT,
        "job.sh": "export BASE=meta-llama/Llama-3.1-8B\npython prepare.py\npython train.py\n",
    },
    "set by a job to the same family": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + ENVIRONMENT.format("Qwen/Qwen2.5-7B") + FIT,
        "job.sh": "BASE=meta-llama/Llama-3.1-70B python train.py\n",
    },
    "unknown variable of a job": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + ENVIRONMENT.format("Qwen/Qwen2.5-7B") + FIT,
        "job.sh": "export BASE=$1\npython train.py\n",
    },
    "own model": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN + FROM_DISK + FIT.replace("MODEL", '"us/ours"'),
    },
    "new weights": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN
        + FROM_DISK
        + FIT.replace("from_pretrained(MODEL)", "from_config(config)", 1),
    },
    "a script that counts": {
        "count.py": PREPARE.replace('return {"input_ids": ids, "labels": ids}', "return {}")
        + "print(len(rows))\n",
        "train.py": TRAIN + FROM_DISK + FIT,
    },
    "two models": {
        "prepare.py": TO_DISK,
        "train.py": TRAIN
        + FROM_DISK
        + FIT
        + 'student = AutoModelForCausalLM.from_pretrained("gpt2")\n',
    },
}


def found(folder: Path, files: dict[str, str]) -> int:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    paths = [path for path in sorted(folder.iterdir()) if path.suffix == ".py"]
    return len(lint(paths, select=["rows-tokenized-for-another-model"]).findings)


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_ids_of_another_vocabulary(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == 1


@pytest.mark.parametrize("files", SAME.values(), ids=SAME)
def test_ids_that_may_be_the_models_own(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == 0
