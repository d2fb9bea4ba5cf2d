"""Which calls of generate get all rows of a file in one batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

START = """
import json
import pandas as pd
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model", device_map="cuda")
"""
READ = 'rows = [json.loads(line) for line in open("test.jsonl")]\n'
PROMPTS = 'prompts = [row["prompt"] for row in rows]\n'
ENCODE = 'inputs = tokenizer(prompts, padding=True, return_tensors="pt").to("cuda")\n'
ASK = "outputs = model.generate(**inputs, max_new_tokens=512)\n"


def severities(folder: Path, text: str, rows: int = 200) -> list[str]:
    """What the rule says of a script beside a file of so many rows."""
    lines = "".join(json.dumps({"prompt": f"Question {n}?"}) + "\n" for n in range(rows))
    (folder / "test.jsonl").write_text(lines, encoding="utf-8")
    path = folder / "predict.py"
    path.write_text(START + text, encoding="utf-8")
    found = lint([path], select=["all-prompts-in-one-generation"]).findings
    return [finding.severity for finding in found]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (READ + PROMPTS + ENCODE + ASK, "warning"),
        (
            READ
            + 'prompts = [tokenizer.apply_chat_template(r["messages"][:-1], tokenize=False) for r in rows]\n'
            + ENCODE
            + "import torch\nwith torch.no_grad():\n    "
            + ASK,
            "warning",
        ),
        (
            'ds = load_dataset("json", data_files="test.jsonl", split="train")\nprompts = ds["prompt"]\n'
            + ENCODE
            + ASK,
            "warning",
        ),
        (
            'prompts = pd.read_json("test.jsonl", lines=True)["prompt"].tolist()\n' + ENCODE + ASK,
            "warning",
        ),
        (
            "def predict(path):\n    rows = [json.loads(line) for line in open(path)]\n"
            '    prompts = [row["prompt"] for row in rows]\n'
            '    inputs = tokenizer(prompts, padding=True, return_tensors="pt")\n'
            '    return model.generate(**inputs)\npredict("elsewhere.jsonl")\n',
            "info",
        ),
    ],
)
def test_all_rows_in_one_batch(tmp_path: Path, text: str, said: str) -> None:
    assert severities(tmp_path, text) == [said]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param(READ + PROMPTS + ENCODE + ASK, 20, id="few rows"),
        pytest.param(
            READ + PROMPTS + ENCODE.replace("prompts,", "prompts[:8],") + ASK, 200, id="a slice"
        ),
        pytest.param(
            READ
            + PROMPTS
            + "for i in range(0, len(prompts), 16):\n    "
            + ENCODE.replace("prompts,", "prompts[i:i + 16],")
            + "    "
            + ASK,
            200,
            id="batches",
        ),
        pytest.param(
            READ
            + "for row in rows:\n    "
            + ENCODE.replace("prompts,", "row['prompt'],")
            + "    "
            + ASK,
            200,
            id="row by row",
        ),
        pytest.param('prompts = ["a", "b", "c"]\n' + ENCODE + ASK, 200, id="prompts in the code"),
        pytest.param(
            'from vllm import LLM\nllm = LLM("model")\n'
            + READ
            + PROMPTS
            + "outputs = llm.generate(prompts)\n",
            200,
            id="vLLM",
        ),
        pytest.param(
            'ds = load_dataset("json", data_files="test.jsonl", split="train").select(range(8))\n'
            'prompts = ds["prompt"]\n' + ENCODE + ASK,
            200,
            id="some rows",
        ),
        pytest.param(
            READ + "def ask(batch):\n"
            "    inputs = tokenizer([r['prompt'] for r in batch], padding=True, return_tensors='pt')\n"
            "    return model.generate(**inputs)\nfor i in range(0, len(rows), 8):\n    ask(rows[i:i + 8])\n",
            200,
            id="a function that gets a batch",
        ),
    ],
)
def test_batches_that_fit(tmp_path: Path, text: str, rows: int) -> None:
    assert severities(tmp_path, text, rows) == []
