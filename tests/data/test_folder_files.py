"""Files of a folder are told apart: training rows, predictions of a model, settings and lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.data.tell_training_files_from_predictions import (
    classify_folder_files,
    list_prediction_files,
)
from truetune.settings.run_spec import RunSpec

CHAT = {
    "messages": [
        {"role": "user", "content": "Is it open?"},
        {"role": "assistant", "content": "Yes."},
    ]
}
ALPACA = {"instruction": "Is it open?", "input": "", "output": "Yes."}
ANSWER = {"question": "Is it open?", "reference": "Yes.", "output": "It is not known."}
PREDICTION = {"prompt": "Is it open?", "prediction": "No.", "reference": "Yes."}
SERVED = {"prompt": "Is it open?", "response": "No.", "finish_reason": "stop"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
ANTHROPIC_TOOL = {"name": "get_weather", "description": "Weather.", "input_schema": SCHEMA}
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def write(folder: Path, files: Mapping[str, Any]) -> Path:
    """A folder with these files; lists of objects are written one a line where the name says so."""
    for name, content in files.items():
        if name.endswith(".jsonl"):
            text = "".join(json.dumps(row) + "\n" for row in content)
        elif isinstance(content, str):
            text = content
        else:
            text = json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "training", "predictions", "others"),
    [
        ({"a.jsonl": [CHAT], "answers.jsonl": [ANSWER]}, ["a.jsonl"], ["answers.jsonl"], []),
        ({"a.jsonl": [ALPACA], "preds.jsonl": [PREDICTION]}, ["a.jsonl"], ["preds.jsonl"], []),
        ({"a.jsonl": [CHAT], "served.json": [SERVED]}, ["a.jsonl"], ["served.json"], []),
        ({"a.jsonl": [CHAT], "tools.json": [TOOL, TOOL]}, ["a.jsonl"], [], ["tools.json"]),
        ({"a.jsonl": [CHAT], "t.jsonl": [ANTHROPIC_TOOL]}, ["a.jsonl"], [], ["t.jsonl"]),
        ({"preds.jsonl": [PREDICTION]}, [], ["preds.jsonl"], []),
        (
            {"a.jsonl": [CHAT], "ds.json": DEEPSPEED, "b.json": [CHAT]},
            ["a.jsonl", "b.json"],
            [],
            ["ds.json"],
        ),
        (
            {"a.jsonl": [CHAT], "labels.json": ["billing", "returns"]},
            ["a.jsonl"],
            [],
            ["labels.json"],
        ),
        ({"a.jsonl": [CHAT], "p.csv": "prediction,gold\nno,yes\n"}, ["a.jsonl"], ["p.csv"], []),
    ],
)
def test_files_that_are_no_training_rows(
    files: Mapping[str, Any],
    training: list[str],
    predictions: list[str],
    others: list[str],
    tmp_path: Path,
) -> None:
    sorted_files = classify_folder_files(write(tmp_path, files))
    assert sorted_files is not None
    names = [[Path(path).name for path in group] for group in sorted_files]
    assert names == [training, predictions, others, []]


TABLE = "ticket,day,question,reply\n1,Monday,Is it open?,Yes.\n"
MAKES = "import json\nrows = open('raw.csv')\nwith open('train.jsonl', 'w') as out:\n    out.write(json.dumps(row))\n"


@pytest.mark.parametrize(
    ("script", "is_input"),
    [
        (MAKES, True),
        ("import pandas as pd\ndf = pd.read_csv('raw.csv')\ndf[['a']].to_json('train.jsonl')\n", True),
        (MAKES.replace("'train.jsonl'", "'other.jsonl'"), False),
        ("d = load_dataset('csv', data_files='raw.csv')\nTrainer(d)\nopen('train.jsonl', 'w')\n", False),
        ("print(1)\n", False),
    ],
)  # fmt: skip
def test_what_a_script_makes_rows_of(script: str, is_input: bool, tmp_path: Path) -> None:
    files = {"train.jsonl": [CHAT], "raw.csv": TABLE, "prep.py": script}
    sorted_files = classify_folder_files(write(tmp_path, files))
    others = [Path(path).name for path in sorted_files.others] if sorted_files else []
    assert ("raw.csv" in others) is is_input


@pytest.mark.parametrize(
    "files",
    [
        {"a.jsonl": [CHAT], "b.jsonl": [ALPACA]},
        {"train.jsonl": [ANSWER], "test.jsonl": [ANSWER]},
        {"grpo.jsonl": [{"prompt": "2 + 2?", "completion": "4", "ground_truth": "4"}]},
        {
            "a.jsonl": [{**ALPACA, "reference": "page 3"}],
            "b.jsonl": [{**ALPACA, "reference": "page 4"}],
        },
        {"a.csv": "prompt,completion\nIs it?,Yes.\n"},
        {"broken.jsonl": [], "a.jsonl": [CHAT]},
    ],
)
def test_training_rows_stay(files: Mapping[str, Any], tmp_path: Path) -> None:
    assert classify_folder_files(write(tmp_path, files)) is None


def test_a_folder_of_rows_and_answers_is_judged_by_its_rows(tmp_path: Path) -> None:
    rows = [
        {"messages": [{**turn, "content": f"{turn['content']} {n}"} for turn in CHAT["messages"]]}
        for n in range(9)
    ]
    folder = write(
        tmp_path, {"rows.jsonl": rows, "answers.jsonl": [PREDICTION] * 9, "run.py": "print(1)\n"}
    )
    report = check_paths([str(folder)], RunSpec())
    (data,) = [subject for subject in report.subjects if subject.kind == "data"]
    assert dict(data.facts)["rows"] == "9"
    assert any("truetune score" in (unjudged.unlock or "") for unjudged in report.not_judged)


def test_a_folder_of_answers_alone_is_not_taken_for_training_rows(tmp_path: Path) -> None:
    folder = write(tmp_path, {"answers.jsonl": [PREDICTION] * 9, "run.py": "print(1)\n"})
    report = check_paths([str(folder)], RunSpec())
    (unjudged,) = [one for one in report.not_judged if one.what == "the answers"]
    assert unjudged.asked
    assert not any("--map" in f"{one.reason}{one.unlock}" for one in report.not_judged)


REPLY = {
    "question": "Is it open?",
    "answer": "It is",
    "finish_reason": "length",
    "completion_tokens": 256,
}
ROLES = {**CHAT, "text": "Yes.", "completion_tokens": 12}
ASKS = "from openai import OpenAI\nwith open('replies.jsonl', 'w') as out:\n    out.write(line)\n"
WRITES_TO_AN_OPTION = """
import sys
from openai import OpenAI
def ask(question):
    reply = OpenAI().chat.completions.create(model="m", messages=[])
    return {"question": question, "answer": reply, "finish_reason": "stop", "completion_tokens": 1}
with open(sys.argv[1], "w") as out:
    out.write(str(ask("a")))
"""
LOADS = (
    "trainer = SFTTrainer(model, train_dataset=load_dataset('json', data_files='replies.jsonl'))\n"
)


@pytest.mark.parametrize(
    ("row", "scripts", "is_prediction"),
    [
        (REPLY, {"ask.py": ASKS}, True),
        (ROLES, {"ask.py": ASKS}, True),
        (REPLY, {"ask.py": WRITES_TO_AN_OPTION}, True),
        ({**REPLY, "topic": "a"}, {"ask.py": WRITES_TO_AN_OPTION}, False),
        (REPLY, {"ask.sh": "python ask.py >> replies.jsonl\n"}, True),
        (REPLY, {"ask.py": ASKS, "train.py": LOADS}, False),
        (REPLY, {}, False),
        (CHAT, {"ask.py": ASKS}, False),
    ],
)
def test_replies_that_a_script_beside_writes_are_predictions(
    row: Any, scripts: dict[str, str], is_prediction: bool, tmp_path: Path
) -> None:
    write(tmp_path, {"replies.jsonl": [row], **scripts})
    file = str(tmp_path / "replies.jsonl")
    assert list_prediction_files([file]) == ((file,) if is_prediction else ())
    found = list_prediction_files([str(tmp_path)])
    assert [Path(one).name for one in found] == (["replies.jsonl"] if is_prediction else [])


def test_hypotheses_beside_references_are_predictions(tmp_path: Path) -> None:
    predictions, training = tmp_path / "predictions.csv", tmp_path / "train.csv"
    predictions.write_text("src,ref,hyp\nHello,Hallo,Hallo Welt\n")
    training.write_text("prompt,completion\nHello,Hallo\n")
    assert list_prediction_files([str(predictions), str(training)]) == (str(predictions),)


ASKED = {"question": "Is it open?", "answer": "Please check the website."}
ASK = """import sys, json
from openai import OpenAI
c = OpenAI(base_url="http://localhost:8000/v1")
with open(sys.argv[1], "w") as f:
    for q in questions:
        a = c.chat.completions.create(model="m", messages=[{"role": "user", "content": q}])
        f.write(json.dumps({"question": q, "answer": a.choices[0].message.content}) + "\\n")
"""
GENERATE = """import json
from transformers import pipeline
ask = pipeline("text-generation", model="out/tuned")
rows = [{"question": q, "answer": ask(q)[0]["generated_text"]} for q in questions]
open("tried.jsonl", "w").write("\\n".join(map(json.dumps, rows)))
"""
TRAIN = 'rows = load_dataset("json", data_files="prefs.jsonl")\nDPOTrainer(model="m", train_dataset=rows).train()\n'
TRAIN_ON_IT = TRAIN.replace("prefs.jsonl", "tried.jsonl")


@pytest.mark.parametrize(
    ("scripts", "are_predictions"),
    [
        ({"ask.py": ASK, "dpo.py": TRAIN}, True),
        ({"ask.py": GENERATE, "dpo.py": TRAIN}, True),
        ({"ask.py": ASK.replace("chat.completions", "responses"), "dpo.py": TRAIN}, True),
        ({"ask.py": ASK, "dpo.py": TRAIN.replace("json\", data_files=\"prefs.jsonl", "org/prefs")}, True),
        ({"ask.sh": 'curl :8000/v1/chat/completions | jq \'{"question":.q,"answer":.a}\' >> tried.jsonl\n',
          "dpo.py": TRAIN}, True),
        # Rows that a model wrote for a training, and rows of which nobody says what they are.
        ({"make.py": ASK, "sft.py": TRAIN_ON_IT}, False),
        ({"make.py": GENERATE, "sft.py": TRAIN_ON_IT}, False),
        ({"make.py": ASK}, False),
        ({"make.py": ASK, "sft.py": "SFTTrainer(train_dataset=load(sys.argv[1])).train()\n"}, False),
        ({"clean.py": 'f = open("tried.jsonl", "w")\nf.write("question answer")\n', "dpo.py": TRAIN}, False),
        ({"dpo.py": TRAIN}, False),
    ],
)  # fmt: skip
def test_answers_that_a_script_writes_are_no_training_rows(
    tmp_path: Path, scripts: dict[str, str], are_predictions: bool
) -> None:
    folder = write(tmp_path, {"tried.jsonl": [ASKED], **scripts})
    assert bool(list_prediction_files([str(folder)])) == are_predictions


TRAINING = 'rows = load_dataset("json", data_files="prefs.jsonl")\ntrainer = DPOTrainer(model, train_dataset=rows)'
COMPARED = {"question": "Is it open?", "before": "Yes.", "after": "Yes, it is."}
COMPARING = 'print(json.dumps({"question": q, "before": base(q), "after": tuned(q)}))'


@pytest.mark.parametrize(
    ("name", "script", "training", "is_output"),
    [
        ("compared.jsonl", COMPARING, TRAINING, True),
        (
            "out.jsonl",
            'open("out.jsonl", "w").write(json.dumps({"question": 1, "before": 2, "after": 3}))',
            TRAINING,
            True,
        ),
        ("out.jsonl", "csv.DictWriter(f, ['question', 'before', 'after'])", TRAINING, True),
        ("compared.jsonl", COMPARING, TRAINING.replace("prefs", "compared"), False),
        ("compared.jsonl", "print('question')", TRAINING, False),
        ("compared.jsonl", "", TRAINING, False),
    ],
)
def test_what_a_script_writes_is_no_broken_row(
    tmp_path: Path, name: str, script: str, training: str, *, is_output: bool
) -> None:
    files = {"prefs.jsonl": [ALPACA], name: [COMPARED], "compare.py": script, "dpo.py": training}
    found = classify_folder_files(write(tmp_path, files))
    others = [Path(path).name for path in found.others] if found is not None else []
    assert others == ([name] if is_output else [])


HELD_OUT = {"prompt": "Is it open?", "completion": "Yes."}
ASKING = """with open("held.jsonl") as f, open("preds.jsonl", "w") as out:
    out.write(json.dumps({"answer": model.generate(f.readline())}))"""


@pytest.mark.parametrize(
    ("script", "is_prediction"),
    [
        (ASKING, False),
        (
            'rows = load_dataset("json", data_files="held.jsonl")\nmodel.generate(x)\nopen("o", "w")',
            False,
        ),
        (
            't = pd.read_json("held.jsonl", lines=True)\nmodel.generate(t)\nt.to_json("out.jsonl")',
            False,
        ),
        ('with open("held.jsonl", "w") as f:\n    f.write(model.generate(x))', True),
        ('OUT = "held.jsonl"\nwith open(OUT, "w") as f:\n    f.write(model.generate(x))', True),
        (
            'open("held.jsonl", mode="a").write(model.generate(x))\nprint(open("held.jsonl").read())',
            True,
        ),
    ],
)
def test_held_out_rows_that_a_script_reads_are_no_predictions(
    tmp_path: Path, script: str, *, is_prediction: bool
) -> None:
    training = 'Trainer(train_dataset=load_dataset("json", data_files="train.jsonl"))'
    files = {"held.jsonl": [HELD_OUT], "ask.py": script, "train.py": training}
    folder = write(tmp_path, files)
    names = [Path(path).name for path in list_prediction_files([str(folder)])]
    assert names == (["held.jsonl"] if is_prediction else [])


FIT = 'ds = load_dataset("json", data_files="train.jsonl", split="train")\nTrainer(model, train_dataset=ds).train()'
MAKERS = {
    "two files": """with open("train.jsonl", "w") as out:
    for line in open("raw.jsonl"):
        out.write(shape(line))""",
    "one statement": """with open("raw.jsonl", encoding="utf-8") as f, open("train.jsonl", mode="w") as out:
    out.write(shape(f.read()))""",
    "paths": """rows = [json.loads(x) for x in Path("raw.jsonl").read_text().splitlines()]
Path("train.jsonl").write_text("".join(map(shape, rows)))""",
    "pandas": """df = pd.read_json("data/raw.jsonl", lines=True)
df.to_json("data/train.jsonl", orient="records", lines=True)""",
    "opened paths": """rows = Path("raw.jsonl").read_text()
with Path("train.jsonl").open("w") as out:
    out.write(shape(rows))""",
}
NO_MAKERS = {
    "another file is made": (MAKERS["paths"].replace("train", "other"), FIT),
    "both are trained": (
        MAKERS["paths"],
        FIT.replace('"train.jsonl"', '["train.jsonl", "raw.jsonl"]'),
    ),
    "rows are added": (
        'with open("raw.jsonl", "a") as out:\n    out.write(open("train.jsonl").read())',
        FIT,
    ),
    "rows are counted": ('print(len(open("raw.jsonl").readlines()), "train.jsonl")', FIT),
    "the folder is trained": (
        MAKERS["paths"],
        'ds = load_dataset("json", data_dir=".")\nTrainer(model, train_dataset=ds).train()',
    ),
    "no training": (MAKERS["paths"], "print(1)"),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_rows_of_which_others_are_made_are_left_out(maker: str, tmp_path: Path) -> None:
    files = {"train.jsonl": [CHAT], "raw.jsonl": [ALPACA], "prep.py": maker, "train.py": FIT}
    found = classify_folder_files(write(tmp_path, files))
    assert found is not None
    assert [Path(path).name for path in found.training] == ["train.jsonl"]
    assert [Path(path).name for path in found.origins] == ["raw.jsonl"]


@pytest.mark.parametrize(("maker", "training"), NO_MAKERS.values(), ids=NO_MAKERS)
def test_rows_beside_those_that_are_made_stay(maker: str, training: str, tmp_path: Path) -> None:
    files = {"train.jsonl": [CHAT], "raw.jsonl": [ALPACA], "prep.py": maker, "fit.py": training}
    assert classify_folder_files(write(tmp_path, files)) is None


@pytest.mark.parametrize(
    ("trains_on", "raw"),
    [("raw.jsonl", [ALPACA]), ("raw.csv", TABLE)],
    ids=["rows", "table"],
)
def test_rows_that_a_notebook_trains_on_stay(trains_on: str, raw: Any, tmp_path: Path) -> None:
    source = FIT.replace("train.jsonl", trains_on).splitlines(keepends=True)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    maker = f"rows = open('{trains_on}')\nwith open('train.jsonl', 'w') as out:\n    out.write(json.dumps(rows))\n"
    files = {"train.jsonl": [CHAT], trains_on: raw, "prep.py": maker, "train.py": FIT}
    folder = write(tmp_path, files)
    assert classify_folder_files(folder) is not None
    write(folder, {"trial.ipynb": notebook})
    assert classify_folder_files(folder) is None


def test_many_scripts_above_a_folder_do_not_hide_its_own(tmp_path: Path) -> None:
    write(tmp_path, {f"a{number}.py": "print(1)" for number in range(60)})
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, {"train.jsonl": [CHAT], "raw.csv": TABLE, "prep.py": MAKES})
    sorted_files = classify_folder_files(folder)
    assert sorted_files is not None
    assert [Path(path).name for path in sorted_files.others] == ["raw.csv"]


SCORER = (
    'rows = [json.loads(x) for x in open("o.jsonl")]\n'
    'print("accuracy", sum(r["output"] == r["expected"] for r in rows))\n'
)
TWO_SIDES = {"question": "Is it open?", "output": "No.", "expected": "Yes."}


@pytest.mark.parametrize(
    ("files", "are_predictions"),
    [
        ({"o.jsonl": [{"text": "a", "predicted_class": "x", "true_class": "y"}]}, True),
        ({"o.jsonl": [{"q": "a", "gold_label": "y", "pred_label": "x"}]}, True),
        ({"o.jsonl": [{"q": "a", "model_prediction": "x", "expected_value": "y"}]}, True),
        ({"o.jsonl": [TWO_SIDES], "score.py": SCORER}, True),
        ({"o.jsonl": [{"text": "a", "true_class": "y"}]}, False),
        ({"o.jsonl": [{"prompt": "a", "completion": "y"}]}, False),
        ({"o.jsonl": [TWO_SIDES]}, False),
        ({"o.jsonl": [TWO_SIDES], "score.py": SCORER.replace("o.jsonl", "p.jsonl")}, False),
        ({"o.jsonl": [TWO_SIDES], "score.py": SCORER, "train.py": TRAIN_ON_IT}, False),
    ],
)
def test_answers_beside_what_they_are_compared_with(
    files: Mapping[str, Any], are_predictions: bool, tmp_path: Path
) -> None:
    sorted_files = classify_folder_files(write(tmp_path, files))
    found = sorted_files.predictions if sorted_files is not None else ()
    assert [Path(one).name for one in found] == ["o.jsonl"] * are_predictions


TRAINS_ON_DATA = (
    "from datasets import load_dataset\nfrom trl import SFTTrainer\n"
    'SFTTrainer("org/model", train_dataset=load_dataset("json", data_files="{}", split="train")).train()\n'
)


@pytest.mark.parametrize(
    ("trained", "is_prediction"),
    [
        ("data/rows.jsonl", True),
        # The training reads the file itself, or rows that are not here.
        ("staging.jsonl", False),
        ("data/gone.jsonl", False),
    ],
)
def test_answers_beside_their_references_are_not_trained_where_other_rows_are(
    trained: str, is_prediction: bool, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    rows = [{"question": f"q {n}?", "answer": f"a {n}"} for n in range(4)]
    write(tmp_path / "data", {"rows.jsonl": rows})
    answers = [{**row, "answer": "<pad>", "new_tokens": 9, "expected": "yes"} for row in rows]
    write(tmp_path, {"staging.jsonl": answers})
    (tmp_path / "train.py").write_text(TRAINS_ON_DATA.format(trained), encoding="utf-8")
    files = classify_folder_files(tmp_path)
    found = [Path(one).name for one in files.predictions] if files is not None else []
    assert found == (["staging.jsonl"] if is_prediction else [])
