"""Columns that answers are made from and no prompt holds, by the mapping of each framework; and few prompts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from truetune.evaluation.score_predictions import score
from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project

CODE = "ROW004"
NAMES = ("Wei Marino", "Elif Haddad", "Lucia Demir", "Jonas Byrne", "Yuki Tanaka", "Omar Costa")
GOODS = ("kettle", "backpack", "drill", "lamp", "printer", "jacket", "chair", "router")
TASKS = ("Give name, order and product as JSON.", "Read the message and return the fields.")
LLAMA_FACTORY = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: lora
dataset: tickets
dataset_dir: data
template: qwen
cutoff_len: 2048
output_dir: saves
"""
AXOLOTL = """base_model: Qwen/Qwen2.5-7B
adapter: lora
lora_r: 16
datasets:
  - path: rows.jsonl
    ds_type: json
    type:
      field_instruction: instruction
      field_input: input
      field_output: output
      format: "{FORMAT}"
sequence_len: 2048
micro_batch_size: 2
output_dir: out
"""
SCRIPT = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(lambda row: {"prompt": PROMPT, "completion": row["output"]}, remove_columns=rows.column_names)
SFTTrainer("Qwen/Qwen2.5-7B", train_dataset=rows, args=SFTConfig(output_dir="out", max_length=2048)).train()
"""


def tickets(column: str = "input") -> list[dict[str, Any]]:
    """Messages, and the fields that stand in them."""
    draw = random.Random(5)
    rows = []
    for number in range(60):
        name, good = draw.choice(NAMES), draw.choice(GOODS)
        order = f"{draw.choice('ABKT')}{draw.randint(100_000, 999_999)}"
        text = (
            f"Hello, my {good} of order {order} came with a crack, and I would like another. {name}"
        )
        answer = json.dumps({"name": name, "order": order, "product": good})
        rows.append({"instruction": TASKS[number % 2], column: text, "output": answer})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def severities(folder: Path) -> list[str]:
    """Those of the rule's findings."""
    report = check_project([str(folder)], RunSpec())
    return [one.severity for one in report.findings if one.code == CODE]


def llama_factory(folder: Path, rows: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    (folder / "train.yaml").write_text(LLAMA_FACTORY)
    write(folder / "data" / "tickets.jsonl", rows)
    info = {"tickets": {"file_name": "tickets.jsonl", **entry}}
    (folder / "data" / "dataset_info.json").write_text(json.dumps(info))


PAIR = {"prompt": "instruction", "response": "output"}


@pytest.mark.parametrize(
    ("column", "entry", "wanted"),
    [
        ("input", {"columns": PAIR}, ["error"]),
        ("context", {"columns": PAIR}, ["error"]),
        ("passage", {"columns": PAIR}, ["error"]),
        ("ticket_words", {"columns": PAIR}, ["warning"]),
        ("context", {}, ["error"]),
        ("input", {"columns": {**PAIR, "query": "input"}}, []),
        ("context", {"columns": {**PAIR, "query": "context"}}, []),
        ("input", {}, []),
    ],
)
def test_llama_factory(
    tmp_path: Path, column: str, entry: dict[str, Any], wanted: list[str]
) -> None:
    llama_factory(tmp_path, tickets(column), entry)
    assert severities(tmp_path) == wanted


def test_llama_factory_reads_no_system_column_that_is_not_named(tmp_path: Path) -> None:
    rows = [{**row, "system": f"You are clerk {n}."} for n, row in enumerate(tickets())]
    llama_factory(tmp_path, rows, {"columns": {**PAIR, "query": "input"}})
    assert severities(tmp_path) == ["warning"]


def test_llama_factory_input_that_is_empty(tmp_path: Path) -> None:
    rows = [{**row, "instruction": row["input"], "input": ""} for row in tickets()]
    llama_factory(tmp_path, rows, {"columns": PAIR})
    assert severities(tmp_path) == []


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("### {instruction}", ["error"]),
        ("[INST] {instruction} [/INST]", ["error"]),
        ("### {instruction} {input}", []),
        ("{input} -> {instruction}", []),
    ],
)
def test_axolotl(tmp_path: Path, written: str, wanted: list[str]) -> None:
    (tmp_path / "run.yml").write_text(AXOLOTL.replace("{FORMAT}", written))
    write(tmp_path / "rows.jsonl", tickets())
    assert severities(tmp_path) == wanted


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ('row["instruction"]', ["error"]),
        ("f\"Task: {row['instruction']}\"", ["error"]),
        ('row["instruction"] + row["input"]', []),
        ("f\"{row['input']} {row['instruction']}\"", []),
    ],
)
def test_script(tmp_path: Path, prompt: str, wanted: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("PROMPT", prompt))
    write(tmp_path / "rows.jsonl", tickets())
    assert severities(tmp_path) == wanted


@pytest.mark.parametrize(
    ("column", "wanted"),
    [("context", ["error"]), ("transcript", ["error"]), ("complaint", ["warning"])],
)
def test_rows_alone(tmp_path: Path, column: str, wanted: list[str]) -> None:
    rows = [
        {"prompt": row["instruction"], "completion": row["output"], column: row[column]}
        for row in tickets(column)
    ]
    write(tmp_path / "rows.jsonl", rows)
    assert severities(tmp_path) == wanted


@pytest.mark.parametrize(
    "column", ["rejected", "explanation", "answer_long", "source_title", "reasoning_steps"]
)
def test_columns_that_are_made_from_answers(tmp_path: Path, column: str) -> None:
    rows = [
        {
            "prompt": row["input"],
            "completion": row["output"],
            column: f"It is {row['output']} by my reading of it.",
        }
        for row in tickets()
    ]
    write(tmp_path / "rows.jsonl", rows)
    assert "error" not in severities(tmp_path)


def test_a_column_that_stands_in_the_prompt_otherwise(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"{row['instruction']}\n{row['input'].upper()}",
            "completion": row["output"],
            "context": row["input"],
        }
        for row in tickets()
    ]
    write(tmp_path / "rows.jsonl", rows)
    assert "error" not in severities(tmp_path)


def answers_of(prompts: list[str], answers: list[str], references: list[str]) -> list[str]:
    """Codes of the rule on prompts that tell nothing."""
    report = score(answers, prompts=prompts, references=references)
    return [one.code for one in report.findings if one.code == "ANS040"]


def test_few_prompts_and_many_references() -> None:
    rows = tickets()
    references = [row["output"] for row in rows]
    invented = references[7:] + references[:7]
    few = [row["instruction"] for row in rows]
    assert answers_of(few, invented, references) == ["ANS040"]
    assert answers_of([few[0]] * len(few), invented, references) == ["ANS040"]
    # The model knows what is wanted: the prompt was written down without a part of it.
    assert answers_of(few, references, references) == []
    # The prompts differ.
    assert answers_of([row["input"] for row in rows], invented, references) == []
    # Several answers to one question.
    assert answers_of(few, invented, [few[0]] * len(few)) == []
    # A picture.
    assert answers_of([f"<image>{one}" for one in few], invented, references) == []
    # Several references of each of many questions.
    several = [f"Question {n // 4}?" for n in range(len(rows))]
    assert answers_of(several, invented, references) == []


@pytest.mark.parametrize("column", ["text", "prompt_text", "context"])
def test_a_column_that_is_the_row_rendered(tmp_path: Path, column: str) -> None:
    rows = []
    for row in tickets():
        turns = [
            {"role": "user", "content": row["instruction"]},
            {"role": "assistant", "content": row["output"]},
        ]
        rendered = f"<|user|>{row['instruction']}<|assistant|>{row['output']}"
        rows.append({"messages": turns, column: rendered})
    write(tmp_path / "rows.jsonl", rows)
    assert "error" not in severities(tmp_path)


def test_names_of_sources_are_no_prompts() -> None:
    references = [row["output"] for row in tickets()]
    invented = references[7:] + references[:7]
    assert answers_of(["gsm8k"] * len(references), invented, references) == []


def test_one_answer_to_one_prompt() -> None:
    references = [row["output"] for row in tickets()]
    prompts = [TASKS[0]] * len(references)
    report = score([references[3]] * len(references), prompts=prompts, references=references)
    codes = [one.code for one in report.findings]
    assert "ANS040" in codes
    assert "ANS005" not in codes
