"""The files that a script trains on, and the steps that follow from their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    local_row_files_of_only_trainer,
    training_row_limit,
)
from truetune.source.parsed_source_file import parse_module

TRAINS = """
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8, num_train_epochs=2)
trainer = SFTTrainer(model="some/model", args=args, train_dataset=rows)
trainer.train()
"""
KNOWN = {
    "of datasets": 'rows = load_dataset("json", data_files="faq.jsonl", split="train")',
    "of a split": (
        'rows = load_dataset("json", data_files={"train": "faq.jsonl", "test": "other.jsonl"})["train"]'
    ),
    "shuffled and split": (
        'parts = load_dataset("json", data_files="faq.jsonl", split="train").train_test_split(0.1)\n'
        'rows = parts["train"].shuffle(seed=1)'
    ),
    "read by hand": ('rows = Dataset.from_list([json.loads(line) for line in open("faq.jsonl")])'),
    "formatted in batches": (
        "def fill(batch):\n    texts = []\n    for said in batch['messages']:\n        texts.append(str(said))\n"
        "    return {'text': texts}\n"
        'rows = load_dataset("json", data_files="faq.jsonl", split="train").map(fill, batched=True)'
    ),
}
UNKNOWN = {
    "of the hub": 'rows = load_dataset("some/rows", split="train")',
    "cut in pieces": (
        "def cut(batch):\n    return {'text': [t[i : i + 9] for t in batch['text'] for i in range(0, len(t), 9)]}\n"
        'rows = load_dataset("json", data_files="faq.jsonl", split="train").map(cut, batched=True)'
    ),
    "joined": (
        'one = load_dataset("json", data_files="faq.jsonl", split="train")\n'
        "rows = concatenate_datasets([one, one, one])"
    ),
}
IMPORTS = "import json\nfrom datasets import Dataset, concatenate_datasets, load_dataset\n"


def lay_out(folder: Path, code: str) -> Path:
    row = {
        "messages": [
            {"role": "user", "content": "Is it?"},
            {"role": "assistant", "content": "Yes."},
        ]
    }
    (folder / "faq.jsonl").write_text((json.dumps(row) + "\n") * 60, encoding="utf-8")
    path = folder / "train.py"
    path.write_text(IMPORTS + code + TRAINS, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", KNOWN)
def test_the_steps_of_a_script_follow_from_its_rows(name: str, tmp_path: Path) -> None:
    path = lay_out(tmp_path, KNOWN[name])
    (finding,) = lint([str(path)], select=["setting-out-of-range"]).findings
    assert finding.message.startswith("4 optimizer steps in the whole run")
    assert "60 rows / batch 4 x 8 x 2 epochs = 4 steps" in finding.evidence[0]


@pytest.mark.parametrize("name", UNKNOWN)
def test_rows_that_are_not_known_say_nothing(name: str, tmp_path: Path) -> None:
    path = lay_out(tmp_path, UNKNOWN[name])
    assert (
        local_row_files_of_only_trainer(parse_module(path.read_text(encoding="utf-8"), str(path)))
        == ()
    )
    assert not lint([str(path)], select=["setting-out-of-range"]).findings


def test_rows_that_are_named_beside_a_script_are_those_of_its_trainer(tmp_path: Path) -> None:
    path = lay_out(tmp_path, UNKNOWN["of the hub"])
    rows = str(tmp_path / "faq.jsonl")
    assert lint([str(path)], select=["setting-out-of-range"], rows=[rows]).findings


def _notebook(folder: Path, *printed: str, rows: str = "rows") -> Path:
    code = TRAINS.replace("num_train_epochs=2", "max_steps=10").replace("=rows)", f"={rows})")
    cells = [
        {
            "cell_type": "code",
            "source": code,
            "outputs": [{"output_type": "stream", "text": text} for text in printed],
        }
    ]
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


BANNER = "   \\\\   /|    Num examples = 9,812 | Num Epochs = 1 | Total steps = 10"
SET = "Dataset({\n    features: ['text'],\n    num_rows: 9812\n})"
HELD_OUT = (
    "DatasetDict({\n test: Dataset({ num_rows: 90 })\n train: Dataset({ num_rows: 9812 })\n})"
)


@pytest.mark.parametrize("printed", [BANNER, SET, HELD_OUT])
def test_rows_that_a_notebook_prints_are_counted(printed: str, tmp_path: Path) -> None:
    found = lint([_notebook(tmp_path, printed)], select=["setting-out-of-range"]).findings
    assert "320 of 9,812 rows" in found[0].message


@pytest.mark.parametrize(
    ("printed", "rows"),
    [
        (("loss 2.1",), "rows"),
        ((SET, SET.replace("9812", "400")), "rows"),
        ((SET,), "rows.select(range(300))"),
        ((BANNER.replace("9,812", "640"),), "rows"),
    ],
)
def test_rows_that_may_be_others_are_not_counted(
    printed: tuple[str, ...], rows: str, tmp_path: Path
) -> None:
    path = _notebook(tmp_path, *printed, rows=rows)
    found = lint([path], select=["setting-out-of-range"]).findings
    assert not any("of 9,812" in one.message or "are never seen" in one.message for one in found)


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        (".shuffle(seed=0).select(range(64))", 64),
        (".take(32).shuffle(seed=0)", 32),
        (".select(keep)", None),
        (".select(range(8, 64))", None),
        ("\nif debug:\n    rows = rows.select(range(64))", None),
    ],
)
def test_the_rows_that_a_script_keeps(step: str, limit: int | None, tmp_path: Path) -> None:
    path = lay_out(tmp_path, KNOWN["of datasets"] + step)
    assert training_row_limit(parse_module(path.read_text(encoding="utf-8"), str(path))) == limit


PRINTED = """
import json
from pathlib import Path
SYSTEM = "%s"
def chat(record):
    fields = {key: record[key] for key in ("name", "paid")}
    return [{"role": "system", "content": SYSTEM}, {"role": "assistant", "content": %s}]
Path("rows.jsonl").write_text("".join(json.dumps({"messages": chat(one)}) for one in records))
"""
COLUMN = """
from datasets import Dataset
PROMPT = "Give the fields as JSON: "
def row(record):
    return {"prompt": PROMPT + record["text"], "completion": f"{dict_of(record)}"}
def dict_of(record):
    return {"name": record["name"]}
Dataset.from_list([row(one) for one in records]).to_json("rows.jsonl")
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (PRINTED % ("Answer in JSON.", "str(fields)"), 1),
        (PRINTED % ("Answer in JSON.", "f'{fields}'"), 1),
        (COLUMN, 1),
        (PRINTED % ("Answer in JSON.", "json.dumps(fields)"), 0),
        (PRINTED % ("Answer in JSON.", "str(record['answer'])"), 0),
        # a list of numbers is JSON: the corners of a box
        (PRINTED % ("Answer in JSON.", "str([record['x'], 12])"), 0),
        (PRINTED % ("Answer in JSON.", "f'{[round(x) for x in record[1]]}'"), 0),
        (PRINTED % ("Answer in JSON.", "str([name.strip() for name in record])"), 1),
        (PRINTED % ("Answer as a Python dictionary, not JSON.", "str(fields)"), 0),
        (PRINTED % ("Answer in one word.", "str(fields)"), 0),
        (PRINTED % ("Answer in JSON.", "'Here: ' + str(fields)"), 0),
    ],
)
def test_answers_printed_as_python(script: str, expected: int, tmp_path: Path) -> None:
    path = tmp_path / "prepare.py"
    path.write_text(script)
    assert len(lint([path], select=["answers-printed-as-python"]).findings) == expected
