"""Labels that are made by `bool` of numbers, over the values that stand in the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

RULE = "cast-or-comparison-never-varies"
END = "\nfrom trl import KTOTrainer\nKTOTrainer(model='m', train_dataset=rows).train()\n"
PANDAS = "import pandas as pd\nfrom datasets import Dataset\nframe = pd.read_csv('votes.csv')\n"
BY_MAP = PANDAS + (
    "def shape(one):\n    return {'prompt': one['q'], 'completion': one['a'], 'label': LABEL}\n"
    "rows = Dataset.from_pandas(frame).map(shape)" + END
)
BY_JSONL = (
    "import json\nrows = []\nfor line in open('votes.jsonl'):\n    one = json.loads(line)\n"
    "    rows.append(dict(prompt=one['q'], completion=one['a'], label=LABEL))" + END
)
BY_FRAME = PANDAS + "frame['label'] = LABEL\nrows = Dataset.from_pandas(frame)" + END
BY_LAMBDA = (
    "from datasets import load_dataset\nrows = load_dataset('csv', data_files='votes.csv', split='train')\n"
    "rows = rows.map(lambda one: {'label': LABEL})" + END
)
BY_LIST = PANDAS + (
    "rows = Dataset.from_dict({'prompt': frame['q'].tolist(), 'label': [LABEL for one in frame['v']]})"
    + END
)


def found(folder: Path, script: str, votes: list[object]) -> list[str]:
    rows = [{"q": f"q{n}", "a": f"a{n}", "v": vote} for n, vote in enumerate(votes)]
    table = [
        "q,a,v",
        *(f"{row['q']},{row['a']},{'' if row['v'] is None else row['v']}" for row in rows),
    ]
    (folder / "votes.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
    (folder / "votes.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    (folder / "train.py").write_text(script, encoding="utf-8")
    return [one.remedy for one in truetune.lint([str(folder / "train.py")], select=[RULE]).findings]


@pytest.mark.parametrize(
    ("script", "votes", "wanted"),
    [
        (BY_MAP.replace("LABEL", "bool(one['v'])"), [1, -1, 1, -1], "> 0"),
        (BY_MAP.replace("LABEL", "bool(int(one['v']))"), [1, 2, 2], "LEAST_GOOD_GRADE"),
        (BY_JSONL.replace("LABEL", "bool(one['v'])"), [5, 1, 3, 2], "LEAST_GOOD_GRADE"),
        (BY_FRAME.replace("LABEL", "frame['v'].astype(bool)"), [-1, 1], "frame['v'] > 0"),
        (BY_LAMBDA.replace("LABEL", "bool(one['v'])"), [-1, 1, 1], "> 0"),
    ],
)
def test_numbers_that_are_all_true(
    tmp_path: Path, script: str, votes: list[object], wanted: str
) -> None:
    remedies = found(tmp_path, script, votes)
    assert len(remedies) == 1
    assert wanted in remedies[0]


@pytest.mark.parametrize(
    ("script", "votes"),
    [
        (BY_MAP.replace("LABEL", "bool(one['v'])"), [1, 0, 1]),
        (BY_MAP.replace("LABEL", "one['v'] > 0"), [1, -1]),
        (BY_MAP.replace("LABEL", "bool(one['v'])"), [1, 1, 1]),
        (BY_JSONL.replace("LABEL", "bool(one['v'])"), [True, False]),
        (BY_FRAME.replace("LABEL", "frame['v'].clip(lower=0).astype(bool)"), [-1, 1]),
        # a count that is asked for presence is no label
        (BY_MAP.replace("'label': LABEL", "'has_votes': bool(one['v'])"), [3, 4]),
    ],
)
def test_sound_labels(tmp_path: Path, script: str, votes: list[object]) -> None:
    assert found(tmp_path, script, votes) == []


def test_values_that_are_not_seen_are_not_judged(tmp_path: Path) -> None:
    script = BY_MAP.replace("LABEL", "bool(one['v'])").replace("votes.csv", "/data/elsewhere.csv")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    report = truetune.lint([str(tmp_path / "train.py")], select=[RULE])
    assert not report.findings
    assert [one.what for one in report.not_judged] == [RULE]
