"""Pairs that a script renders whole beside a prompt, followed without a tokenizer; and pairs whose prompt stands once."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

RULE = "pair-prompt-not-shared"
HEAD = """import json
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import {trainer}Config, {trainer}Trainer
tok = AutoTokenizer.from_pretrained("acme/assistant-instruct")
model = AutoModelForCausalLM.from_pretrained("acme/assistant-instruct")
rows = load_dataset("json", data_files="pairs.jsonl", split="train")
def render(chat, **more):
    return tok.apply_chat_template(chat, tokenize=False, **more)
def user(text):
    return {{"role": "user", "content": text}}
def says(text):
    return {{"role": "assistant", "content": text}}
"""
TAIL = """
trainer = {trainer}Trainer(model, args={trainer}Config("out", max_length=1024), train_dataset=rows, processing_class=tok)
trainer.train()
"""
WHOLE_COLUMNS = """def shape(row):
    return {"prompt": render([user(row["question"])], add_generation_prompt=True),
            "chosen": render(row["good_chat"]), "rejected": render(row["bad_chat"])}
rows = rows.map(shape)"""
BUILT_IN_A_LAMBDA = """rows = rows.map(lambda row: {
    "prompt": row["question"],
    "chosen": render([user(row["question"]), says(row["good"])]),
    "rejected": render([user(row["question"]), says(row["bad"])])})"""
WITH_EOS = """rows = rows.map(lambda row: {
    "prompt": row["question"],
    "chosen": render(row["good_chat"]) + tok.eos_token,
    "rejected": f"{render(row['bad_chat'])}{tok.eos_token}"})"""
IN_BATCHES = """def shape(batch):
    return {"prompt": [render([user(q)], add_generation_prompt=True) for q in batch["question"]],
            "chosen": [render(chat) for chat in batch["good_chat"]],
            "rejected": [render(chat) for chat in batch["bad_chat"]]}
rows = rows.map(shape, batched=True)"""
IN_A_LOOP = """made = []
for line in open("pairs.jsonl"):
    row = json.loads(line)
    sides = [render([{"role": "system", "content": "Be short."}, user(row["question"]), says(row[key])]) for key in ("good", "bad")]
    made.append({"prompt": row["question"], "chosen": sides[0], "rejected": sides[1]})
rows = Dataset.from_list(made)"""
OLD_COLUMN_STAYS = """rows = rows.rename_column("question", "prompt")
def shape(row):
    return {"chosen": render(row["good_chat"]), "rejected": render(row["bad_chat"])}
rows = rows.map(shape)"""
MESSAGES = """rows = rows.map(lambda row: {"prompt": [user(row["question"])], "chosen": row["good_chat"], "rejected": row["bad_chat"]})"""
JOINED = """rows = rows.map(lambda row: {"prompt": row["question"],
    "chosen": row["question"] + "\\n" + row["good"], "rejected": row["question"] + "\\n" + row["bad"]})"""
NO_PROMPT = """rows = rows.map(lambda row: {"chosen": render(row["good_chat"]), "rejected": render(row["bad_chat"])},
    remove_columns=["question"])"""
EXTRACTED = """rows = rows.map(lambda row: {"prompt": row["question"], "chosen": row["good_chat"], "rejected": row["bad_chat"]})"""
LAST_TURN = """rows = rows.map(lambda row: {"prompt": render(row["good_chat"][:-1], add_generation_prompt=True),
    "chosen": render(row["good_chat"][-1:]), "rejected": render(row["bad_chat"][-1:])})"""
CUT = """def shape(row):
    prompt = render([user(row["question"])], add_generation_prompt=True)
    return {"prompt": prompt, "chosen": render(row["good_chat"])[len(prompt):], "rejected": render(row["bad_chat"])[len(prompt):]}
rows = rows.map(shape)"""
ANSWERS = """rows = rows.map(lambda row: {"prompt": render([user(row["question"])], add_generation_prompt=True),
    "chosen": row["good"], "rejected": row["bad"]})"""
PROMPT_TAKEN_AWAY = OLD_COLUMN_STAYS.replace("map(shape)", 'map(shape, remove_columns=["prompt"])')


def count_of(folder: Path, body: str, trainer: str) -> int:
    """How many pairs hold their prompt twice."""
    lines = []
    for n in range(9):
        question, good, bad = f"When does shop number {n} open today?", f"At {n}.", "Who knows."
        user = {"role": "user", "content": question}
        chats = {
            f"{name}_chat": [user, {"role": "assistant", "content": text}]
            for name, text in (("good", good), ("bad", bad))
        }
        lines.append(json.dumps({"question": question, "good": good, "bad": bad, **chats}))
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = HEAD.format(trainer=trainer) + body + TAIL.format(trainer=trainer)
    (folder / "train.py").write_text(text, encoding="utf-8")
    report = truetune.check([str(folder)], select=[RULE])
    return sum(finding.count or 0 for finding in report.findings)


@pytest.mark.parametrize("trainer", ["DPO", "ORPO"])
@pytest.mark.parametrize(
    "body",
    [
        WHOLE_COLUMNS,
        BUILT_IN_A_LAMBDA,
        WITH_EOS,
        IN_BATCHES,
        IN_A_LOOP,
        OLD_COLUMN_STAYS,
        MESSAGES,
        JOINED,
    ],
)
def test_the_prompt_stands_twice(body: str, trainer: str, tmp_path: Path) -> None:
    assert count_of(tmp_path, body, trainer) == 9


@pytest.mark.parametrize("body", [NO_PROMPT, EXTRACTED, LAST_TURN, CUT, ANSWERS, PROMPT_TAKEN_AWAY])
def test_the_prompt_stands_once(body: str, tmp_path: Path) -> None:
    assert count_of(tmp_path, body, "DPO") == 0
