"""Rows that a script makes of texts of other rows, of the wrong column, or of nothing: small projects, followed."""

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.data.script_rows.read_rows_given_to_trainer import read_trained_text_rows
from truetune.settings.run_spec import RunSpec

TOWNS = (
    "Graz",
    "Linz",
    "Wels",
    "Steyr",
    "Villach",
    "Bregenz",
    "Dornbirn",
    "Lienz",
    "Krems",
    "Melk",
    "Zwettl",
    "Horn",
) + (
    "Retz",
    "Tulln",
    "Baden",
    "Leoben",
    "Bruck",
    "Murau",
    "Liezen",
    "Admont",
    "Hallein",
    "Kufstein",
    "Schwaz",
)
ROWS = [
    {
        "question": f"When does the public library of {town} open on winter weekdays?",
        "answer": f"Its doors are unlocked at {7 + n % 4}:{10 + n}, and the reading hall of {town} follows later.",
        "source": ("mail", "chat")[n % 2],
    }
    for n, town in enumerate(TOWNS)
]
HEAD = """import json, random
from datasets import Dataset, load_dataset
from trl import SFTConfig, SFTTrainer
data = [json.loads(line) for line in open("qa.jsonl")]
rows = load_dataset("json", data_files="qa.jsonl", split="train")
questions, answers = [row["question"] for row in data], [row["answer"] for row in data]
out = []
"""
TAIL = """
SFTTrainer("some/model", args=SFTConfig("out", max_length=1024), train_dataset=rows).train()
"""
OFF_BY_ONE = """for i in range(len(data) - 1):
    out.append({"prompt": data[i]["question"], "completion": data[i + 1]["answer"]})
rows = Dataset.from_list(out)"""
ONE_BEFORE = """for i, row in enumerate(data):
    out.append({"prompt": row["question"], "completion": data[i - 1]["answer"]})
rows = Dataset.from_list(out)"""
UNEQUAL_LISTS = 'rows = Dataset.from_list([{"prompt": q, "completion": a} for q, a in zip(questions, answers[1:])])'
SHUFFLED = """random.shuffle(answers)
rows = Dataset.from_dict({"prompt": questions, "completion": answers})"""
SORTED = 'rows = Dataset.from_dict({"prompt": sorted(questions), "completion": answers})'
LEFT_FROM_LOOP = """for row in data:
    answer = row["answer"]
for row in data:
    out.append({"prompt": row["question"], "completion": answer})
rows = Dataset.from_list(out)"""
IN_ORDER = (
    'rows = Dataset.from_list([{"prompt": q, "completion": a} for q, a in zip(questions, answers)])'
)
SHUFFLED_ROWS = """random.shuffle(data)
rows = Dataset.from_list([{"prompt": row["question"], "completion": row["answer"]} for row in data])"""
SHUFFLED_NUMBERS = """order = list(range(len(data)))
random.shuffle(order)
rows = Dataset.from_list([{"prompt": data[i]["question"], "completion": data[i]["answer"]} for i in order])"""
SHUFFLED_PAIRS = """pairs = list(zip(questions, answers))
random.shuffle(pairs)
rows = Dataset.from_list([{"prompt": q, "completion": a} for q, a in pairs])"""
EXAMPLE_BEFORE = """for i, row in enumerate(data):
    shot = data[i - 1]
    prompt = shot["question"] + " " + shot["answer"] + " " + row["question"]
    out.append({"prompt": prompt, "completion": row["answer"]})
rows = Dataset.from_list(out)"""
OVERWRITTEN = """def build(row):
    reply = row["answer"]
    reply = row["question"].strip()
    return {"prompt": row["question"], "completion": reply}
rows = rows.map(build)"""
NOT_REPLACED = """def build(row):
    prompt = "Answer: <question>".replace("<<question>>", row["question"])
    return {"prompt": prompt, "completion": row["answer"]}
rows = rows.map(build)"""
FILTERED = """rows = rows.filter(lambda row: row["source"] == "mail")
rows = rows.map(lambda row: {"prompt": row["question"], "completion": row["answer"]})"""
CUT_SHORT = 'rows = rows.map(lambda row: {"prompt": row["question"], "completion": row["answer"].upper()[:40]})'


def project(folder: Path, body: str) -> Path:
    """A folder with the rows and a script that shapes them."""
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "train.py").write_text(HEAD + body + TAIL)
    return folder


@pytest.mark.parametrize(
    "body", [OFF_BY_ONE, ONE_BEFORE, UNEQUAL_LISTS, SHUFFLED, SORTED, LEFT_FROM_LOOP]
)
def test_texts_of_other_rows_are_found(body: str, tmp_path: Path) -> None:
    report = check_paths([str(project(tmp_path, body))], RunSpec())
    found = [one for one in report.findings if one.rule == "answers-of-other-rows"]
    assert len(found) == 1
    assert "pair texts of different rows" in found[0].message


@pytest.mark.parametrize(
    "body", [IN_ORDER, SHUFFLED_ROWS, SHUFFLED_NUMBERS, SHUFFLED_PAIRS, EXAMPLE_BEFORE, FILTERED]
)
def test_rows_that_stay_together_are_left_alone(body: str, tmp_path: Path) -> None:
    rows = read_trained_text_rows(str(project(tmp_path, body) / "train.py"))
    assert rows.mispairing is None
    assert not rows.columns_read_but_not_trained()


@pytest.mark.parametrize(
    ("body", "lost"),
    [(OVERWRITTEN, ("answer",)), (NOT_REPLACED, ("question",)), (CUT_SHORT, ()), (IN_ORDER, ())],
)
def test_columns_that_a_later_step_loses(body: str, lost: tuple[str, ...], tmp_path: Path) -> None:
    rows = read_trained_text_rows(str(project(tmp_path, body) / "train.py"))
    assert rows.columns_read_but_not_trained() == lost
