"""Rows that a script saved before its data changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = "import os\nfrom pathlib import Path\nfrom datasets import load_dataset, load_from_disk, DatasetDict, Dataset\n"
ELSE = "    ds = load_dataset('json', data_files='rows.jsonl', split='train').map(f)\n    ds.save_to_disk({})\n"
PLAIN = (
    HEAD
    + "if os.path.exists('tok'):\n    ds = load_from_disk('tok')\nelse:\n"
    + ELSE.format("'tok'")
)
CASES = {
    "exists": PLAIN,
    "constant": HEAD + "D = 'tok'\nif os.path.isdir(D):\n    ds = load_from_disk(D)\nelse:\n" + ELSE.format("D"),
    "pathlib": HEAD + "D = 'tok'\nif Path(D).exists():\n    ds = Dataset.load_from_disk(D)\nelse:\n" + ELSE.format("D"),
    "try": HEAD + "try:\n    ds = load_from_disk('tok')\nexcept FileNotFoundError:\n" + ELSE.format("'tok'"),
    "several files": PLAIN.replace("'rows.jsonl'", "{'train': 'rows.jsonl', 'test': 'test.jsonl'}"),
    "pandas": HEAD
    + "import pandas as pd\nif os.path.exists('tok'):\n    ds = load_from_disk('tok')\nelse:\n"
    + "    ds = Dataset.from_pandas(pd.read_json('rows.jsonl', lines=True))\n    ds.save_to_disk('tok')\n",
}  # fmt: skip
FINE = {
    "compares times": PLAIN.replace(
        "exists('tok')", "exists('tok') and os.path.getmtime('tok') > t"
    ),
    "saved elsewhere": PLAIN.replace("save_to_disk('tok')", "save_to_disk('new')"),
    "another file": PLAIN.replace("rows.jsonl", "others.jsonl"),
    "loads alone": HEAD + "ds = load_from_disk('tok')\n",
    "no load": HEAD + "if True:\n" + ELSE.format("'tok'"),
}


def _count(code: str, folder: Path, age_of_rows: int, age_of_data: int) -> int:
    (folder / "tok").mkdir()
    path = folder / "train.py"
    path.write_text(code, encoding="utf-8")
    now = path.stat().st_mtime
    for name, age in (("tok/state.json", age_of_rows), ("rows.jsonl", age_of_data)):
        (folder / name).write_text("{}", encoding="utf-8")
        os.utime(folder / name, (now - age, now - age))
    return len(lint([path], select=["saved-rows-older-than-data"]).findings)


@pytest.mark.parametrize("case", CASES)
def test_older_rows_are_told(case: str, tmp_path: Path) -> None:
    assert _count(CASES[case], tmp_path, 9000, 100) == 1


@pytest.mark.parametrize("case", CASES)
def test_younger_rows_are_left_alone(case: str, tmp_path: Path) -> None:
    assert _count(CASES[case], tmp_path, 100, 9000) == 0


@pytest.mark.parametrize("case", FINE)
def test_rows_that_may_be_right_are_left_alone(case: str, tmp_path: Path) -> None:
    assert _count(FINE[case], tmp_path, 9000, 100) == 0


def test_a_checkout_within_a_minute_is_left_alone(tmp_path: Path) -> None:
    assert _count(PLAIN, tmp_path, 130, 100) == 0
