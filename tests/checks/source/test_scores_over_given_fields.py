"""Scores that go over the fields of a prediction, and those that count what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

READ = (
    "import json\nimport numpy as np\ncorrect = total = 0\nscores = []\nfor row in rows:\n"
    "    gold = json.loads(row['reference'])\n    pred = json.loads(row['prediction'])\n"
)
ITEMS = "    for key, value in pred.items():\n        correct += value == gold.get(key)\n        total += 1\n"
PRINT = "print('accuracy', correct / total)\n"
FAULTY = {
    "items": READ + ITEMS + PRINT,
    "keys": READ
    + "    for key in pred.keys():\n        total += 1\n        if key in gold and pred[key] == gold[key]:\n"
    "            correct += 1\n" + PRINT,
    "itself": READ
    + "    for name in pred:\n        total += 1\n        correct += pred[name] == gold.get(name)\n"
    + PRINT,
    "comprehension": READ
    + "    scores.append(sum(gold.get(k) == v for k, v in pred.items()) / len(pred))\n",
    "mean": READ + "    scores.append(np.mean([gold.get(k) == v for k, v in pred.items()]))\n",
    "function": "def score(answer, expected):\n    right = seen = 0\n    for field, value in answer.items():\n"
    "        seen += 1\n        if expected.get(field) == value:\n            right += 1\n    return right / seen\n",
    "list": READ
    + "    for key, value in pred.items():\n        scores.append(value == gold.get(key))\n"
    "print(np.mean(scores))\n",
    "unreadable": READ.replace(
        "    pred = json.loads(row['prediction'])\n",
        "    try:\n        pred = json.loads(row['prediction'])\n    except ValueError:\n        pred = {}\n",
    )
    + ITEMS
    + PRINT,
}
HEALTHY = {
    "gold": READ
    + "    for key, value in gold.items():\n        correct += pred.get(key) == value\n        total += 1\n"
    + PRINT,
    "precision": READ + ITEMS + "precision = correct / total\n",
    "both": READ + ITEMS + "    wanted = len(gold)\n" + PRINT,
    "missing": READ + ITEMS + "    total += len(gold.keys() - pred.keys())\n" + PRINT,
    "over the references": READ + ITEMS + "print(correct / sum(map(count, references)))\n",
    "filled": READ.replace("json.loads(row['prediction'])", "{k: row.get(k) for k in KEYS}")
    + ITEMS
    + PRINT,
    "filled by a function": "def parse(text):\n    found = json.loads(text)\n    for key in KEYS:\n"
    "        found.setdefault(key, None)\n    return found\n"
    + READ.replace("json.loads(row['prediction'])", "parse(row['prediction'])")
    + ITEMS
    + PRINT,
    "another loop": READ + "    for key, value in config.items():\n        total += 1\n" + PRINT,
    "no reference": READ
    + "    for key, value in pred.items():\n        total += 1\n        correct += value in allowed[key]\n"
    + PRINT,
}


def codes(text: str, folder: Path) -> set[str]:
    path = folder / "score.py"
    path.write_text(text)
    return {finding.code for finding in truetune.lint([str(path)], select=["SRC313"]).findings}


@pytest.mark.parametrize("form", FAULTY)
def test_fields_left_out_are_not_counted(form: str, tmp_path: Path) -> None:
    assert codes(FAULTY[form], tmp_path) == {"SRC313"}


@pytest.mark.parametrize("form", HEALTHY)
def test_fields_left_out_are_counted(form: str, tmp_path: Path) -> None:
    assert codes(HEALTHY[form], tmp_path) == set()
