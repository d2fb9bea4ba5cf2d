"""Two files that a script joins by position: in one order, and in another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

GOLD = [{"id": i, "answer": f"a{i}"} for i in range(20)]
PREDICTIONS = [{"id": i, "prediction": f"a{i}"} for i in (*range(10, 20), *range(10))]
HEAD = "import json\nimport pandas as pd\n"
JOINS = {
    "columns": "g = [json.loads(l)['answer'] for l in open('gold.jsonl')]\n"
    "p = [json.loads(l)['prediction'] for l in open('p.jsonl')]\nhits = sum(a == b for a, b in zip(p, g))",
    "rows": "g = [json.loads(l) for l in open('gold.jsonl')]\np = [json.loads(l) for l in open('p.jsonl')]\n"
    "for a, b in zip(g, p):\n    print(a['answer'] == b['prediction'])",
    "functions": "def load(path):\n    return [json.loads(l) for l in open(path)]\n"
    "for a, b in zip(load('p.jsonl'), load('gold.jsonl'), strict=True):\n    print(a == b)",
    "frames": "g = pd.read_json('gold.jsonl', lines=True)\np = pd.read_json('p.jsonl', lines=True)\n"
    "hits = sum(a == b for a, b in zip(p['prediction'], g['answer']))",
    "datasets": "from datasets import load_dataset\ng = load_dataset('json', data_files='gold.jsonl')['train']\n"
    "p = [json.loads(l) for l in open('p.jsonl')]\nfor a, b in zip(g, p):\n    print(a, b)",
}


def found(folder: Path, code: str, gold: list[dict[str, Any]], said: list[dict[str, Any]]) -> int:
    for name, rows in (("gold.jsonl", gold), ("p.jsonl", said)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "score.py"
    path.write_text(HEAD + code)
    return len(lint([str(path)], select=("SRC183",)).findings)


@pytest.mark.parametrize("code", JOINS.values(), ids=JOINS)
def test_another_order(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code, GOLD, PREDICTIONS) == 1


@pytest.mark.parametrize("code", JOINS.values(), ids=JOINS)
def test_one_order(tmp_path: Path, code: str) -> None:
    in_order = sorted(PREDICTIONS, key=lambda row: int(str(row["id"])))
    assert found(tmp_path, code, GOLD, in_order) == 0
    other_ids = [{**row, "id": f"run-{row['id']}"} for row in PREDICTIONS]
    assert found(tmp_path, code, GOLD, other_ids) == 0
    without = [{"prediction": row["prediction"]} for row in PREDICTIONS]
    assert found(tmp_path, code, GOLD, without) == 0


@pytest.mark.parametrize(
    "code",
    [
        "g = sorted((json.loads(l) for l in open('gold.jsonl')), key=lambda r: r['id'])\n"
        "p = sorted((json.loads(l) for l in open('p.jsonl')), key=lambda r: r['id'])\n"
        "for a, b in zip(g, p):\n    print(a)",
        "g = {r['id']: r for r in map(json.loads, open('gold.jsonl'))}\np = [json.loads(l) for l in open('p.jsonl')]\n"
        "for b in p:\n    print(g[b['id']], b)",
        "p = [json.loads(l) for l in open('p.jsonl')]\nfor a, b in zip(p, p[1:]):\n    print(a, b)",
        "g = {r['id']: r['answer'] for r in map(json.loads, open('gold.jsonl'))}\n"
        "p = [json.loads(l) for l in open('p.jsonl')]\nrefs = [g[r['id']] for r in p]\n"
        "for a, b in zip(p, refs):\n    print(a, b)",
    ],
)
def test_joined_by_id(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code, GOLD, PREDICTIONS) == 0


SHUFFLED = """
import random
questions = [line.strip() for line in open("questions.txt")]
answers = [line.strip() for line in open("answers.txt")]
random.seed(0)
{moved}
rows = [{record} for one, other in zip(questions, answers)]
"""
ROW = '{"prompt": one, "completion": other}'
CHAT = (
    '{"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": other}],'
    ' "question": one, "answer": other}'
)


@pytest.mark.parametrize(
    ("moved", "record", "fires"),
    [
        ("random.shuffle(questions)", ROW, True),
        ("answers = random.sample(answers, len(answers))", CHAT, True),
        ("pass", ROW, False),
        # Negatives are drawn at random on purpose.
        (
            "random.shuffle(answers)",
            '{"question": one, "answer": gold(one), "negative": other}',
            False,
        ),
        ("random.shuffle(answers)", '{"anchor": one, "text": other}', False),
        # Both files are put into one order.
        ("random.shuffle(questions)\nrandom.seed(0)\nrandom.shuffle(answers)", ROW, False),
    ],
)
def test_one_of_two_files_is_shuffled(moved: str, record: str, fires: bool) -> None:
    module = parse_module(SHUFFLED.format(moved=moved, record=record), "prep.py")
    told = run_rule(module, find_rule("rows-joined-after-one-side-changed")).findings
    assert any("was shuffled" in one.message for one in told) is fires


ASKED = [
    {"ticket_id": i, "created_at": f"2026-05-{1 + i * 7 % 20:02}T09:00:00", "text": f"q{i}"}
    for i in (*range(10, 20), *range(10))
]
REPLIES = [{"ticket_id": i, "text": f"a{i}"} for i in range(20)]
READ = (
    "q = pd.read_json('gold.jsonl', lines=True, convert_dates=['created_at'])\n"
    "a = pd.read_json('p.jsonl', lines=True)\n"
)
FRAME = (
    "d = pd.DataFrame({'instruction': q['text'].values, 'input': '', 'output': a['text'].values})"
)
FRAMES = {
    "a frame of columns": READ + FRAME,
    "behind a sort by another column": READ + "q = q.sort_values('created_at')\n" + FRAME,
    "a new column": READ + "q['answer'] = a['text'].values",
    "from_dict": "from datasets import Dataset\n" + READ
    + "d = Dataset.from_dict({'prompt': q['text'].tolist(), 'completion': a['text'].tolist()})",
}  # fmt: skip
JOINED = {
    "by the key": READ + "d = q.sort_values('created_at').merge(a, on='ticket_id')\n"
    "d = pd.DataFrame({'instruction': d['text_x'].values, 'output': d['text_y'].values})",
    "sorted by the key": READ + "q = q.sort_values('ticket_id')\n" + FRAME,
    "by the index": READ + "q, a = q.set_index('ticket_id'), a.set_index('ticket_id')\n"
    "d = pd.DataFrame({'instruction': q['text'], 'output': a['text']})",
    "shuffled": READ + "q = q.sample(frac=1, random_state=1)\n" + FRAME,
    "one frame": READ + "d = pd.DataFrame({'instruction': q['text'].values, 'id': q['ticket_id'].values})",
}  # fmt: skip


@pytest.mark.parametrize("code", FRAMES.values(), ids=FRAMES)
def test_frames_of_files_in_another_order(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code, ASKED, REPLIES) == 1


@pytest.mark.parametrize("code", JOINED.values(), ids=JOINED)
def test_frames_that_are_joined_rightly(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code, ASKED, REPLIES) == 0
