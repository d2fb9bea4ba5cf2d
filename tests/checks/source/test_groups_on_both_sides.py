"""Random splits of rows that belong together, and splits that keep them together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint

HEAD = "import json, random\nfrom sklearn.model_selection import train_test_split\n"
READ = "rows = [json.loads(line) for line in open('rows.jsonl')]\n"


def rows(column: str = "doc_id", groups: int = 20, size: int = 5) -> list[dict[str, Any]]:
    return [{column: f"d{i % groups}", "text": f"part {i}"} for i in range(groups * size)]


def found(folder: Path, code: str, files: dict[str, list[dict[str, Any]]]) -> list[str]:
    for name, content in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    path = folder / "prep.py"
    path.write_text(code)
    return [one.message for one in lint([str(path)], select=("SRC305",)).findings]


SPLITS = {
    "sklearn": "a, b = train_test_split(rows, test_size=0.2)",
    "frame": "import pandas as pd\ndf = pd.read_json('rows.jsonl', lines=True)\na, b = train_test_split(df)",
    "datasets": "from datasets import load_dataset\nds = load_dataset('json', data_files='rows.jsonl')['train']\n"
    "parts = ds.train_test_split(0.1, seed=1)",
    "slices": "random.shuffle(rows)\nn = int(0.9 * len(rows))\ntrain, test = rows[:n], rows[n:]",
    "torch": "import torch\na, b = torch.utils.data.random_split(rows, [80, 20])",
}


@pytest.mark.parametrize("code", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("column", ["doc_id", "conversation_id", "patient"])
def test_rows_of_one_group(tmp_path: Path, code: str, column: str) -> None:
    said = found(tmp_path, HEAD + READ + code, {"rows.jsonl": rows(column)})
    assert len(said) == 1
    assert f"`{column}`" in said[0]


@pytest.mark.parametrize(
    ("code", "content"),
    [
        (SPLITS["sklearn"], rows(size=1)),
        (SPLITS["sklearn"], rows("source", groups=3, size=40)),
        (SPLITS["sklearn"], rows("label")),
        ("a, b = train_test_split(rows, shuffle=False)", rows()),
        ("ids = sorted({r['doc_id'] for r in rows})\na, b = train_test_split(ids)", rows()),
        ("s = GroupShuffleSplit().split(rows, groups=[r['doc_id'] for r in rows])", rows()),
        ("random.shuffle(rows)\ntrain = rows", rows()),
        (
            "docs = {}\nfor r in rows:\n    docs.setdefault(r['doc_id'], []).append(r)\n"
            "parts = list(docs.values())\na, b = train_test_split(parts)",
            rows(),
        ),
    ],
)
def test_groups_that_stay_together(
    tmp_path: Path, code: str, content: list[dict[str, Any]]
) -> None:
    assert found(tmp_path, HEAD + READ + code, {"rows.jsonl": content}) == []


def test_files_that_were_written(tmp_path: Path) -> None:
    code = HEAD + (
        "chunks = make()\ntrain, test = train_test_split(chunks)\n"
        "for name, part in (('train.jsonl', train), ('test.jsonl', test)):\n    save(name, part)\n"
    )
    mixed = rows()
    random_parts = {"train.jsonl": mixed[:80], "test.jsonl": mixed[80:]}
    assert "20 of 20 rows of test.jsonl" in found(tmp_path, code, random_parts)[0]
    by_group = sorted(mixed, key=lambda row: str(row["doc_id"]))
    assert found(tmp_path, code, {"train.jsonl": by_group[:80], "test.jsonl": by_group[80:]}) == []
