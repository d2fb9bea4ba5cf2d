"""Rows of one answer or of one document that a random share of the settings holds out."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.checks.lint import lint
from truetune.checks.rows_made_from_one_source import SiblingGroups, chance_that_all_are_held_out
from truetune.settings.run_spec import RunSpec

WORDS = ("order", "parcel", "late", "refund", "please", "shoes", "cable", "invoice", "box", "card")
Row = Mapping[str, Any]
AXOLOTL = {
    "base_model": "org/model",
    "sequence_len": 512,
    "micro_batch_size": 1,
    "num_epochs": 1,
    "learning_rate": 0.0001,
    "output_dir": "out",
    "adapter": "lora",
    "datasets": [{"path": "rows.jsonl", "type": "chat_template"}],
}
LLAMA_FACTORY = {
    "model_name_or_path": "org/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset_dir": ".",
    "dataset": "rows",
    "template": "llama3",
    "cutoff_len": 512,
    "output_dir": "out",
}


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def chat(question: str, answer: str, **columns: Any) -> Row:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {**columns, "messages": messages}


def made_rows(each: int, *, answer_words: int = 20, key: str = "", groups: int = 20) -> list[Row]:
    """Questions to each of the answers, in a drawn order."""
    rng = random.Random(5)
    rows: list[Row] = []
    for group in range(groups):
        answer = f"{words(rng, answer_words)} {group}"
        columns = {key: f"g{group}"} if key else {}
        rows += [chat(f"{words(rng, 12)} {n}?", answer, **columns) for n in range(each)]
    rng.shuffle(rows)
    return rows


def documents(key: str, groups: int, each: int) -> list[Row]:
    """Rows of some documents, each with an answer of its own."""
    rng = random.Random(6)
    return [
        chat(words(rng, 12), f"{words(rng, 20)} {group} {n}", **{key: f"d{group}"})
        for group in range(groups)
        for n in range(each)
    ]


def findings_of(
    folder: Path, rows: Sequence[Row], settings: Mapping[str, Any], **spec: Any
) -> list[Finding]:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    (folder / "run.yaml").write_text(json.dumps(settings), encoding="utf-8")
    info = {
        "rows": {
            "file_name": "rows.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "messages"},
            "tags": {
                "role_tag": "role",
                "content_tag": "content",
                "user_tag": "user",
                "assistant_tag": "assistant",
            },
        }
    }
    if "stage" in settings:
        (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    report = check_paths([str(folder / "run.yaml")], RunSpec(**spec))
    return [one for one in report.findings if one.rule == "sibling-rows-held-out-and-trained"]


@pytest.mark.parametrize(
    "settings",
    [
        AXOLOTL | {"val_set_size": 0.1},
        AXOLOTL | {"val_set_size": 0.02},
        LLAMA_FACTORY | {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 50},
        LLAMA_FACTORY | {"val_size": 8, "eval_strategy": "epoch"},
    ],
)
def test_a_random_share_of_paraphrases_is_named(
    tmp_path: Path, settings: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = findings_of(tmp_path, made_rows(4, key="seed_id"), settings)
    assert found.severity == "warning"
    assert "80 of 80 rows have the same answer" in found.message
    assert "split by `seed_id`" in str(found.remedy)


def test_groups_need_no_column(tmp_path: Path) -> None:
    (found,) = findings_of(tmp_path, made_rows(3), AXOLOTL | {"val_set_size": 0.1})
    assert "split by the answer" in str(found.remedy)


def test_rows_of_one_document_are_a_note(tmp_path: Path) -> None:
    (found,) = findings_of(tmp_path, documents("doc_id", 20, 4), AXOLOTL | {"val_set_size": 0.1})
    assert found.severity == "info"
    assert "`doc_id`" in found.message


@pytest.mark.parametrize(
    "rows",
    [
        made_rows(1, groups=60),
        made_rows(4, answer_words=2),
        made_rows(30, groups=12),
        made_rows(4, groups=5),
        documents("language", 20, 4),
        documents("source", 4, 20),
        [*made_rows(3, groups=12), *made_rows(1, groups=200)],
        [chat(words(random.Random(1), 9), "one answer to all of these questions, " * 3)] * 60,
    ],
    ids=["alone", "labels", "stock", "few", "kind", "origins", "a small part", "copies"],
)
def test_other_rows_are_left_alone(tmp_path: Path, rows: Sequence[Row]) -> None:
    assert not findings_of(tmp_path, rows, AXOLOTL | {"val_set_size": 0.1})


@pytest.mark.parametrize(
    "settings",
    [
        AXOLOTL,
        AXOLOTL | {"val_set_size": 0},
        AXOLOTL | {"test_datasets": [{"path": "other.jsonl", "type": "chat_template"}]},
    ],
)
def test_runs_that_hold_out_no_random_share(tmp_path: Path, settings: Row) -> None:
    assert not findings_of(tmp_path, made_rows(4), settings)


def test_answers_in_json_may_be_the_same_by_chance(tmp_path: Path) -> None:
    rows = [
        chat(
            f"text {n}", json.dumps({"intent": f"intent number {n % 20}", "priority": "high" * 12})
        )
        for n in range(80)
    ]
    assert not findings_of(tmp_path, rows, AXOLOTL | {"val_set_size": 0.1})


def test_the_share_is_that_of_random_draws() -> None:
    groups = SiblingGroups((4,) * 60, 240, "", has_same_answers=True)
    assert groups.share_of_held_out_rows_with_sibling(24) > 0.99
    pairs = SiblingGroups((2,) * 10, 20, "", has_same_answers=True)
    assert pairs.share_of_held_out_rows_with_sibling(10) == pytest.approx(10 / 19)
    assert chance_that_all_are_held_out(3, 2, 10) == 0.0


SPLIT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="rows.jsonl", split="train")
{split}
SFTTrainer("org/model", SFTConfig("out"), train_dataset=parts["train"], eval_dataset=parts["test"]).train()
"""
RANDOM = "parts = rows.train_test_split(test_size=0.1, seed=1)"


def lint_split(folder: Path, rows: Sequence[Row], split: str) -> list[Finding]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "train.py").write_text(SPLIT.format(split=split))
    report = lint([str(folder / "train.py")])
    return [one for one in report.findings if one.rule == "groups-on-both-sides-of-a-split"]


def test_a_script_that_divides_paraphrases(tmp_path: Path) -> None:
    (found,) = lint_split(tmp_path, made_rows(4), RANDOM)
    assert "have the same answer as other" in found.message


def test_a_script_that_divides_paraphrases_of_columns(tmp_path: Path) -> None:
    rows = [
        {"question": row["messages"][0]["content"], "answer": row["messages"][1]["content"]}
        for row in made_rows(3)
    ]
    (found,) = lint_split(tmp_path, rows, RANDOM)
    assert "20 groups" in found.message


@pytest.mark.parametrize(
    ("rows", "split"),
    [
        (made_rows(1, groups=60), RANDOM),
        (made_rows(4, answer_words=2), RANDOM),
        (
            made_rows(4, key="seed_id"),
            "parts = rows.train_test_split(test_size=0.1, shuffle=False)",
        ),
        (
            made_rows(4, key="topic_id"),
            "from sklearn.model_selection import train_test_split\n"
            "names = sorted(set(rows['topic_id']))\n"
            "train, test = train_test_split(names, test_size=0.1)\n"
            "parts = {'train': rows.filter(lambda r: r['topic_id'] in train),"
            " 'test': rows.filter(lambda r: r['topic_id'] in test)}",
        ),
    ],
)
def test_sound_divisions(tmp_path: Path, rows: Sequence[Row], split: str) -> None:
    assert not lint_split(tmp_path, rows, split)
