"""Rows as a training script shapes them: its code is followed on the real rows, and never run."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.script_rows.compute_python_functions_on_known_values import (
    is_regex_of_bounded_time,
)
from truetune.data.script_rows.read_rows_given_to_trainer import read_trained_text_rows
from truetune.data.script_rows.row_files_of_script import MAX_ROWS, RowFiles
from truetune.errors import DataError
from truetune.settings.run_spec import RunSpec
from truetune.source.symbolic_execution.values_of_run import Sequence

ROWS = [
    {"frage": "Wie hoch ist der Turm?", "antwort": "Er ist 40 Meter hoch.", "art": "kurz"},
    {"frage": "Wann wurde er gebaut?", "antwort": "Im Jahr 1903.", "art": "kurz"},
    {"frage": "Wer hat ihn entworfen?", "antwort": "Eine Frau aus Graz.", "art": "lang"},
]
LOAD = 'rows = load_dataset("json", data_files="rows.jsonl", split="train")\n'
TRAIN = "SFTTrainer(model='m', args=SFTConfig(max_length=64), train_dataset=rows).train()\n"
HEAD = "import json\nfrom datasets import Dataset, load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"

PAIR = {"prompt": "Wie hoch ist der Turm?", "completion": "Er ist 40 Meter hoch."}
TEXT = {"text": "F: Wie hoch ist der Turm?\nA: Er ist 40 Meter hoch."}
CHAT = {
    "messages": [
        {"role": "user", "content": "Wie hoch ist der Turm?"},
        {"role": "assistant", "content": "Er ist 40 Meter hoch."},
    ]
}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "renamed": (
        LOAD + "rows = rows.rename_columns({'frage': 'prompt', 'antwort': 'completion'})\n" + TRAIN,
        PAIR,
    ),
    "lambda": (
        LOAD
        + "rows = rows.map(lambda r: {'text': f\"F: {r['frage']}\\nA: {r['antwort']}\"})\n"
        + TRAIN,
        TEXT,
    ),
    "function with a template": (
        LOAD
        + """
TEMPLATE = "F: {q}\\nA: {a}"
def shape(row):
    return {"text": TEMPLATE.format(q=row["frage"], a=row["antwort"])}
rows = rows.map(shape, remove_columns=rows.column_names)
"""
        + TRAIN,
        TEXT,
    ),
    "batched": (
        LOAD
        + """
def shape(batch):
    texts = []
    for q, a in zip(batch["frage"], batch["antwort"]):
        texts.append("F: " + q + "\\nA: " + a)
    return {"text": texts}
rows = rows.map(shape, batched=True)
"""
        + TRAIN,
        TEXT,
    ),
    "formatting_func": (
        LOAD
        + """
def shape(row):
    return "F: " + row["frage"].strip() + "\\nA: " + row["antwort"]
SFTTrainer(model="m", train_dataset=rows, formatting_func=shape).train()
""",
        TEXT,
    ),
    "text column by name": (
        LOAD
        + """
rows = rows.map(lambda r: {"alles": "F: " + r["frage"] + "\\nA: " + r["antwort"]})
SFTTrainer(model="m", train_dataset=rows, args=SFTConfig(dataset_text_field="alles"))
""",
        TEXT,
    ),
    "messages in a class": (
        LOAD
        + """
class Shaper:
    roles = ("user", "assistant")
    def __init__(self, names):
        self.names = names
    def __call__(self, row):
        turns = [{"role": r, "content": row[n]} for r, n in zip(self.roles, self.names)]
        return {"messages": turns}
rows = rows.map(Shaper(["frage", "antwort"]))
"""
        + TRAIN,
        CHAT,
    ),
    "rendered by the template": (
        LOAD
        + """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("some/model")
def shape(row, tok):
    chat = [{"role": "user", "content": row["frage"]}]
    chat.append({"role": "assistant", "content": row["antwort"]})
    return {"text": tok.apply_chat_template(chat, tokenize=False) + tok.eos_token}
rows = rows.map(shape, fn_kwargs={"tok": tok})
"""
        + TRAIN,
        CHAT,
    ),
    "lines that are parsed": (
        """
rows = []
with open("rows.jsonl") as file:
    for line in file:
        row = json.loads(line)
        if row["art"] == "kurz":
            rows.append({"prompt": row["frage"], "completion": row["antwort"]})
        else:
            rows.append({"prompt": row["frage"].upper(), "completion": row["antwort"]})
rows = Dataset.from_list(rows)
"""
        + TRAIN,
        PAIR,
    ),
    "a generator": (
        """
def read(path):
    for line in open(path):
        row = json.loads(line)
        yield {"prompt": row["frage"], "completion": row["antwort"]}
rows = Dataset.from_generator(read, gen_kwargs={"path": "rows.jsonl"})
"""
        + TRAIN,
        PAIR,
    ),
    "a frame": (
        """
import pandas as pd
frame = pd.read_json("rows.jsonl", lines=True)
frame["text"] = frame.apply(lambda r: "F: " + r["frage"] + "\\nA: " + r["antwort"], axis=1)
rows = Dataset.from_pandas(frame[["text"]])
"""
        + TRAIN,
        TEXT,
    ),
    "columns of a frame": (
        """
import pandas as pd
frame = pd.read_json("rows.jsonl", lines=True)
frame = frame.dropna(subset=["frage"]).drop_duplicates("frage")
frame["text"] = "F: " + frame["frage"].str.strip() + "\\nA: " + frame["antwort"]
rows = Dataset.from_pandas(frame[["text"]], preserve_index=False)
"""
        + TRAIN,
        TEXT,
    ),
    "the best of candidates": (
        LOAD
        + """
def shape(row):
    candidates = [{"text": row["antwort"], "stars": 3}, {"text": "Nein.", "stars": 1}]
    best = max(candidates, key=lambda c: c["stars"])
    return {"prompt": row["frage"], "completion": best["text"]}
rows = rows.map(shape)
"""
        + TRAIN,
        PAIR,
    ),
    "settings of a YAML file": (
        """
import csv
import yaml
from pathlib import Path
ROOT = Path(__file__).resolve().parent
settings = yaml.safe_load((ROOT / "settings.yaml").read_text())
def read():
    with (ROOT / settings["rows"]).open() as file:
        for line in file:
            row = json.loads(line)
            yield {"prompt": row[settings["ask"]], "completion": row["antwort"]}
rows = Dataset.from_generator(read)
"""
        + TRAIN,
        PAIR,
    ),
    "a counter over all lines": (
        """
rows, n = [], 0
for line in open("rows.jsonl"):
    row = json.loads(line)
    n += 1
    if n % 2 == 1 or n > 0:
        rows.append({"prompt": row["frage"], "completion": row["antwort"]})
rows = Dataset.from_list(rows)
"""
        + TRAIN,
        PAIR,
    ),
    "a pattern of names": (
        LOAD.replace("rows.jsonl", "*.jsonl")
        + "rows = rows.rename_columns({'frage': 'prompt', 'antwort': 'completion'})\n"
        + TRAIN,
        PAIR,
    ),
    "settings of a JSON file": (
        """
settings = json.load(open("settings.json"))
rows = load_dataset("json", data_files=settings["rows"], split="train")
rows = rows.map(lambda r: {"text": settings["lead"] + r["frage"] + "\\nA: " + r["antwort"]})
"""
        + TRAIN,
        TEXT,
    ),
    "options and a path": (
        """
import argparse
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--data", default="rows.jsonl")
parser.add_argument("--lead", default="F: ")
args = parser.parse_args()
rows = load_dataset("json", data_files={"train": str(Path(".") / args.data)})["train"]
rows = rows.map(lambda r: {"text": args.lead + r["frage"] + "\\nA: " + r["antwort"]})
"""
        + TRAIN,
        TEXT,
    ),
}


def write(
    folder: Path, code: str, rows: list[dict[str, Any]] = ROWS, name: str = "train.py"
) -> str:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (folder / "settings.json").write_text('{"rows": "rows.jsonl", "lead": "F: "}')
    (folder / "settings.yaml").write_text("rows: rows.jsonl\nask: frage\n")
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / name).write_text(HEAD + dedent(code), encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_followed_however_they_are_shaped(way: str, tmp_path: Path) -> None:
    code, first = WAYS[way]
    rows = read_trained_text_rows(write(tmp_path, code))
    assert rows.rows[0].row == first
    assert [(Path(row.file).name, row.line) for row in rows.rows] == [
        ("rows.jsonl", 1),
        ("rows.jsonl", 2),
        ("rows.jsonl", 3),
    ]


def test_the_lines_of_a_file_are_read_once_for_a_loop_that_fills_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read again at each `append`: 1,600 short rows took 40 seconds."""
    read: list[Path] = []
    text_lines = RowFiles.text_lines

    def count(files: RowFiles, path: Path) -> Sequence:
        read.append(path)
        return text_lines(files, path)

    monkeypatch.setattr(RowFiles, "text_lines", count)
    code, _ = WAYS["lines that are parsed"]
    read_trained_text_rows(write(tmp_path, code, ROWS * 20))
    assert 0 < len(read) < 5


def test_rows_that_a_filter_leaves_out_are_left_out(tmp_path: Path) -> None:
    code = LOAD + "rows = rows.filter(lambda r: r['art'] == 'lang')\n"
    code += "rows = rows.rename_columns({'frage': 'prompt', 'antwort': 'completion'})\n" + TRAIN
    script = write(tmp_path, code)
    assert [row.line for row in read_trained_text_rows(script).rows] == [3]
    read = list(read_conversations([str(tmp_path / "rows.jsonl")], format=script))
    assert [(row.completion, row.origin.line) for row in read] == [("Eine Frau aus Graz.", 3)]


def test_a_helper_beside_the_script_is_followed(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(
        "def shape(row):\n    return {'prompt': row['frage'], 'completion': row['antwort']}\n"
    )
    code = "from shapes import shape\n" + LOAD + "rows = rows.map(shape)\n" + TRAIN
    assert read_trained_text_rows(write(tmp_path, code)).rows[0].row == PAIR


FRAME = "import pandas as pd\nframe = pd.read_json('votes.jsonl', lines=True)\n"
FRAME_TRAIN = (
    "from trl import KTOConfig, KTOTrainer\nrows = Dataset.from_pandas(frame)\n"
    "KTOTrainer(model='m', args=KTOConfig(max_length=64), train_dataset=rows).train()\n"
)
NAMED = "frame = frame.rename(columns={'q': 'prompt', 'a': 'completion'})\n"
FRAMES = {
    "a comparison": ("frame['label'] = frame['vote'] == 1\n", [True, False, True]),
    "a cast of -1": ("frame['label'] = frame['vote'].astype(bool)\n", [True, True, True]),
    "a method": ("frame['label'] = frame['vote'].gt(0)\n", [True, False, True]),
    "a dictionary": (
        "frame['label'] = frame['vote'].map({1: True, -1: False})\n",
        [True, False, True],
    ),
    "a function": ("frame['label'] = frame['vote'].apply(lambda v: v > 0)\n", [True, False, True]),
    "a negation": ("frame['label'] = ~(frame['vote'] < 0)\n", [True, False, True]),
    "two conditions": (
        "frame['label'] = (frame['vote'] > 0) & (frame['a'].str.len() > 1)\n",
        [True, False, False],
    ),
    "assigned": ("frame = frame.assign(label=lambda f: f['vote'] > 0)\n", [True, False, True]),
    "chosen rows": (
        "frame = frame[frame['vote'] > 0]\nframe['label'] = frame['vote'].isin([1])\n",
        [True, True],
    ),
    "a row function": (
        "frame = frame.apply(lambda r: pd.Series({'prompt': r['prompt'], 'completion': r['completion'],"
        " 'label': r['vote'] > 0}), axis=1)\n",
        [True, False, True],
    ),
}


@pytest.mark.parametrize("way", FRAMES)
def test_columns_of_frames_are_followed(way: str, tmp_path: Path) -> None:
    shaping, labels = FRAMES[way]
    votes = [("ab", 1), ("cd", -1), ("e", 1)]
    lines = [json.dumps({"q": "Q", "a": text, "vote": vote}) for text, vote in votes]
    (tmp_path / "votes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    column = "a" if "two" in way else None
    named = NAMED if column is None else ""
    later = "" if column is None else NAMED
    script = tmp_path / "train.py"
    script.write_text(HEAD + FRAME + named + shaping + later + FRAME_TRAIN, encoding="utf-8")
    assert [row.row["label"] for row in read_trained_text_rows(str(script)).rows] == labels


def test_packages_around_the_script_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data, "")
    package = tmp_path / "src" / "project"
    (package / "rows").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "rows" / "__init__.py").write_text("from .load import read\n", encoding="utf-8")
    (package / "rows" / "load.py").write_text(
        "from pathlib import Path\nfrom datasets import load_dataset\n"
        "FOLDER = Path(__file__).resolve().parents[3] / 'data'\n"
        "def read():\n"
        "    rows = load_dataset('json', data_files=str(FOLDER / 'rows.jsonl'), split='train')\n"
        "    return rows.rename_columns({'frage': 'prompt', 'antwort': 'completion'})\n",
        encoding="utf-8",
    )
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    text = HEAD + "from project.rows import read\nrows = read()\n" + TRAIN
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert read_trained_text_rows("scripts/train.py").rows[0].row == PAIR


def test_one_object_for_both_sides_makes_both_alike(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
TURN = {"role": "assistant"}
def say(text):
    TURN["content"] = text
    return TURN
def shape(row):
    return {"prompt": row["frage"], "chosen": [say(row["antwort"])], "rejected": [say(row["art"])]}
"""
        + LOAD
        + "rows = rows.map(shape)\nfrom trl import DPOTrainer\n"
        + TRAIN.replace("SFTTrainer", "DPOTrainer"),
    )
    rows = [row.row for row in read_trained_text_rows(str(script)).rows]
    # Each row is written when it is made, so that the rows differ and the sides of one do not.
    assert [row["chosen"][0]["content"] for row in rows] == ["kurz", "kurz", "lang"]
    assert all(row["chosen"] == row["rejected"] for row in rows)


NOT_FOLLOWED = {
    "a library shapes them": "from magic import shape\n"
    + LOAD
    + "rows = rows.map(shape)\n"
    + TRAIN,
    "a filter of a dictionary by what a library gives": "from magic import kind\n"
    + LOAD
    + "rows = rows.filter(lambda r: kind(r['art']) not in {'kurz': 1, 'lang': 2})\n"
    + TRAIN,
    "a filter of a list by what a library gives": "from magic import kind\n"
    + LOAD
    + "rows = rows.filter(lambda r: kind(r['art']) not in ['kurz', 'lang'])\n"
    + TRAIN,
    "a name of the hub": "rows = load_dataset('org/rows', split='train')\n" + TRAIN,
    "two trainers": LOAD + TRAIN + TRAIN,
    "no trainer": LOAD,
    "a file above": LOAD.replace("rows.jsonl", "../../rows.jsonl") + TRAIN,
    "a hidden file": LOAD.replace("rows.jsonl", ".keys/rows.jsonl") + TRAIN,
    "an absolute file": LOAD.replace("rows.jsonl", "/etc/hostname") + TRAIN,
    "token ids": LOAD
    + "rows = rows.map(lambda r: {'input_ids': [1, 2], 'labels': [1, 2]})\n"
    + TRAIN,
}


@pytest.mark.parametrize("why", NOT_FOLLOWED)
def test_what_is_not_known_gives_no_rows(why: str, tmp_path: Path) -> None:
    inner = tmp_path / "project" / "code"
    (inner / ".keys").mkdir(parents=True)
    (inner / ".keys" / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(DataError, match=r"train\.py: "):
        read_trained_text_rows(write(inner, NOT_FOLLOWED[why]))


BOMBS = {
    "a text that doubles": "text = 'a'\nfor i in range(20000):\n    text = text + text\n",
    "a list that doubles": "items = [1]\nfor i in range(20000):\n    items = items + items\n",
    "a width": "text = '{:1000000000}'.format(1)\nother = f'{1:1000000000}'\n",
    "loops in loops": "n = 0\n"
    + "".join(f"{' ' * i}for x{i} in range(20000):\n" for i in range(6))
    + "      n = n + 1\n",
    "a pattern": "import re\nr = re.sub('(a+)+$', '', 'a' * 40 + 'b')\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_script_can_not_take_long(bomb: str, tmp_path: Path) -> None:
    script = write(tmp_path, BOMBS[bomb] + LOAD + TRAIN)
    # Whatever comes of it, it comes to an end; columns that no trainer reads give no rows.
    with pytest.raises(DataError):
        read_trained_text_rows(script)


def test_patterns_that_may_take_long_are_not_tried() -> None:
    assert is_regex_of_bounded_time(r"\s+", 10_000)
    assert not is_regex_of_bounded_time(r"(a+)+$", 40)
    assert not is_regex_of_bounded_time(r".*.*.*x", 1_000)


def test_check_judges_what_the_script_makes(tmp_path: Path) -> None:
    """Columns that fit no format are no usage error where the script says what they become."""
    doubled = [{**ROWS[0], "antwort": ROWS[0]["frage"] + " Ja."} for _ in range(6)]
    script = write(tmp_path, WAYS["renamed"][0], doubled)
    report = check_paths([str(tmp_path)], RunSpec())
    assert any(subject.path == script for subject in report.subjects)
    assert "duplicate-rows" in {finding.rule for finding in report.findings}
    assert not any("no format fits" in one.reason for one in report.not_judged)


def test_evaluation_rows_of_another_file_are_compared(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "held_out.jsonl").write_text("\n".join(lines) + "\n")
    code = (
        LOAD
        + "held = load_dataset('json', data_files='held_out.jsonl', split='train')\n"
        + "names = {'frage': 'prompt', 'antwort': 'completion'}\n"
        + "SFTTrainer(model='m', train_dataset=rows.rename_columns(names),"
        + " eval_dataset=held.rename_columns(names))\n"
    )
    rows = read_trained_text_rows(write(tmp_path, code))
    assert [Path(name).name for name in rows.evaluation_files] == ["held_out.jsonl"]
    report = check_paths([str(tmp_path / "rows.jsonl"), rows.script], RunSpec())
    assert "train-eval-leak" in {finding.rule for finding in report.findings}


def test_rows_beyond_the_limit_are_said(tmp_path: Path) -> None:
    many = [{"frage": f"Frage {n}?", "antwort": f"Antwort {n}.", "art": "x"} for n in range(2_100)]
    write(tmp_path, WAYS["renamed"][0], many)
    report = check_paths([str(tmp_path)], RunSpec())
    said = [one for one in report.not_judged if one.what == "the other rows"]
    assert said
    assert f"{MAX_ROWS:,}" in said[0].reason


UNREAD = {
    "the column of text is another one": (
        LOAD
        + "SFTTrainer(model='m', train_dataset=rows, args=SFTConfig(dataset_text_field='frage'))\n",
        ["antwort", "art"],
    ),
    "a function reads one column": (
        LOAD + "rows = rows.map(lambda r: {'text': r['frage']})\n" + TRAIN,
        ["antwort", "art"],
    ),
    "renamed columns are read": (WAYS["renamed"][0], ["art"]),
    "a column that is read and changed is read": (
        LOAD
        + "rows = rows.map(lambda r: {'text': r['frage'] + r.get('antwort').upper()})\n"
        + TRAIN,
        ["art"],
    ),
    "a row that is unpacked is read": (
        LOAD
        + "def join(frage, antwort, art):\n    return frage + antwort\n"
        + "rows = rows.map(lambda r: {'text': join(**r)})\n"
        + TRAIN,
        [],
    ),
    "columns of a batch": (
        LOAD
        + "def shape(b):\n    return {'text': [q for q in b['antwort']]}\n"
        + "rows = rows.map(shape, batched=True)\n"
        + TRAIN,
        ["frage", "art"],
    ),
}


@pytest.mark.parametrize("way", UNREAD)
def test_columns_that_the_script_never_reads_are_known(way: str, tmp_path: Path) -> None:
    code, unread = UNREAD[way]
    rows = read_trained_text_rows(write(tmp_path, code))
    assert sorted(rows.rows[0].left_over) == sorted(unread)


def test_an_answer_that_the_script_never_reads_is_named(tmp_path: Path) -> None:
    rows = [{"question": f"Where is place {n}?", "answer": f"In region {n}."} for n in range(30)]
    code = (
        LOAD
        + "SFTTrainer(model='m', train_dataset=rows, args=SFTConfig(dataset_text_field='question'))"
    )
    script = write(tmp_path, code, rows)
    report = check_paths([str(tmp_path)], RunSpec())
    [found] = [one for one in report.findings if one.rule == "unused-columns"]
    assert found.severity == "warning"
    assert "answer (30 rows)" in found.message
    assert script in found.remedy


def test_a_column_with_a_number_of_a_dialogue_is_no_chat(tmp_path: Path) -> None:
    """A script that groups its rows is not followed, and nothing is said of chats that are none."""
    rows = [
        {"dialogue": f"D{n // 2}", "speaker": "agent", "utterance": f"Line {n}."} for n in range(8)
    ]
    write(tmp_path, LOAD + "from magic import group\n" + "rows = group(rows)\n" + TRAIN, rows)
    report = check_paths([str(tmp_path)], RunSpec())
    assert not {"malformed-rows", "duplicate-rows"} & {one.rule for one in report.findings}
    assert any("no format fits" in one.reason for one in report.not_judged)


def test_rows_below_the_folder_of_the_script_are_judged(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"frage": "Ist es gut?", "antwort": "Ja."}) for _ in range(8)]
    (tmp_path / "data" / "rows.jsonl").write_text("\n".join(lines) + "\n")
    code = WAYS["renamed"][0].replace("rows.jsonl", "data/rows.jsonl")
    (tmp_path / "train.py").write_text(HEAD + code)
    report = check_paths([str(tmp_path)], RunSpec())
    assert "duplicate-rows" in {finding.rule for finding in report.findings}


GAME = """
total = 0
for left in range(120):
    for right in range(120):
        total = total + left * right
"""


def test_long_code_of_a_script_without_files_is_not_followed_to_its_end(tmp_path: Path) -> None:
    """A game for rewards takes seconds to follow, and no row is at hand."""
    made = "rows = Dataset.from_list([{'prompt': 'Play.', 'completion': 'Up.'}])\n"
    script = write(tmp_path, made + GAME + TRAIN)
    with pytest.raises(DataError, match="too long to follow"):
        read_trained_text_rows(script)


def test_long_code_behind_the_rows_of_a_file_is_followed(tmp_path: Path) -> None:
    script = write(tmp_path, WAYS["renamed"][0].replace(TRAIN, GAME + TRAIN))
    assert read_trained_text_rows(script).rows[0].row == PAIR
