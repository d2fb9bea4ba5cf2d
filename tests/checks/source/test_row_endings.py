"""Training rows that scripts encode themselves: is there a stop token behind the answers?"""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("{name}")
tok.pad_token = tok.eos_token
model = AutoModelForCausalLM.from_pretrained("{name}")
"""
ENCODE = """
def encode(row):
    p = tok("Q: " + row["q"] + "\\nA: ")["input_ids"]
    a = tok({answer}, add_special_tokens=False)["input_ids"]{end}
    return {{"input_ids": p + a, "labels": [-100] * len(p) + a}}
"""
WHOLE = """
def encode(batch):
    texts = ["### Frage:\\n{}\\n### Antwort:\\n{}".format(q, a) for q, a in zip(batch["q"], batch["a"])]
    made = tok(texts, truncation=True, max_length=512)
    made["labels"] = [list(ids) for ids in made["input_ids"]]
    return made
"""
GIVEN = """
def build(row, tokenizer):
    head = tokenizer(question_of(row))
    tail = tokenizer(row.get("a", "").strip(), add_special_tokens=False)
    ids = head["input_ids"] + tail["input_ids"]
    return dict(input_ids=ids, labels=[-100] * len(head["input_ids"]) + tail["input_ids"])
def question_of(row):
    return f"Review: {row['q']}\\nReply:"
encode = lambda row: build(row, tok)
"""
TRAIN = "Trainer(model, TrainingArguments('out'), train_dataset=rows.map(encode)).train()\n"
BY_SFT = "SFTTrainer(model, args=SFTConfig('out'), train_dataset=rows.map(encode)).train()\n"
LLAMA = "meta-llama/Llama-3.2-1B"


def severities(text: str, folder: Path, name: str = LLAMA) -> list[str]:
    path = folder / "train.py"
    path.write_text(HEAD.format(name=name) + text, encoding="utf-8")
    return [one.severity for one in lint([path], select=["rows-built-without-eos"]).findings]


def encode(answer: str = 'row["a"].strip()', end: str = "") -> str:
    return ENCODE.format(answer=answer, end=end)


@pytest.mark.parametrize(
    "text", [encode() + TRAIN, WHOLE + TRAIN, GIVEN + TRAIN, encode() + BY_SFT]
)
def test_answers_without_a_stop_token_are_found(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == ["warning"]
    assert severities(text, tmp_path, "me/unknown-1b") == ["info"]


@pytest.mark.parametrize(
    "text",
    [
        encode(end=" + [tok.eos_token_id]") + TRAIN,
        encode(end=" + [128001]") + TRAIN,
        encode('row["a"] + "<|end_of_text|>"') + TRAIN,
        # What may hold or append the token elsewhere
        encode("finish(row['a'])") + TRAIN,
        encode('row["text"]') + TRAIN,
        "tok.add_eos_token = True\n" + encode() + TRAIN,
        # No answers, and a trainer that appends it to texts
        'def encode(b):\n    x = tok(b["article"])\n    x["labels"] = x["input_ids"]\n    return x\n'
        + TRAIN,
        'def encode(row):\n    return {"text": "### Q: %s\\n### Answer: %s" % (row["q"], row["a"])}\n'
        + BY_SFT,
    ],
)
def test_rows_that_may_end_are_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == []


METRIC = """
import evaluate, re
import numpy as np
rouge = evaluate.load("rouge")
def read(text):
    found = re.search(r"#### (\\d+)", text)
    return found and found[1]
def score(pair):
    ids = {ids}
    gold = np.where(pair.label_ids != -100, pair.label_ids, tok.pad_token_id)
    said, right = tok.batch_decode(ids), tok.batch_decode(gold)
    return {result}
Trainer(model, TrainingArguments("out"), train_dataset=rows, eval_dataset=rows, compute_metrics=score).train()
"""
PICKED = "pair.predictions.argmax(-1)"


@pytest.mark.parametrize(
    ("ids", "result", "count"),
    [
        (PICKED, "rouge.compute(predictions=said, references=right)", 1),
        (
            "np.argmax(pair.predictions, axis=-1)",
            '{"acc": np.mean([read(a) == read(b) for a, b in zip(said, right)])}',
            1,
        ),
        # Equal where each token is picked right, and then the model writes it as well
        (PICKED, '{"same": np.mean([a == b for a, b in zip(said, right)])}', 0),
        ("model.generate(prompts)", "rouge.compute(predictions=said, references=right)", 0),
    ],
)
def test_texts_of_picked_tokens_are_not_generated(
    ids: str, result: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    text = METRIC.replace("{ids}", ids).replace("{result}", result)
    path.write_text(HEAD.format(name=LLAMA) + text, encoding="utf-8")
    assert len(lint([path], select=["predictions-are-not-generated"]).findings) == count


LOADED = """
import json, torch
from torch.utils.data import DataLoader, Dataset
"""
ROWS = 'rows = [json.loads(line) for line in open("a.jsonl")]\n'
LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in {batches}:
    model(**batch).loss.backward()
    optimizer.step()
"""
COLLATE = """
def collate(batch):
    texts = [{text} for row in batch]
    made = tok(texts, padding=True, return_tensors="pt")
    made["labels"] = made["input_ids"].clone()
    return made
"""
KEPT = """
class Kept(Dataset):
    def __init__(self, path, tokenizer):
        self.rows = []
        for line in open(path):
            row = json.loads(line)
            head = tokenizer("Q: " + row["q"])["input_ids"]
            tail = tokenizer(row["a"], add_special_tokens=False)["input_ids"]{end}
            self.rows.append((head, tail))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        head, tail = self.rows[i]
        return {{"input_ids": torch.tensor(head + tail), "labels": torch.tensor(tail)}}
"""
BATCHES = "DataLoader(rows, batch_size=8, collate_fn=collate)"
OPENED = """
def encode(row):
    head = tok.apply_chat_template(row["turns"], tokenize=False, add_generation_prompt=True)
    ids = tok(head + row["a"], add_special_tokens=False)["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}
"""
FORMATTED = """
from unsloth import FastLanguageModel
model, tok = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B")
def write(batch):
    texts = []
    for q, a in zip(batch["q"], batch["a"]):
        texts.append("### Question:\\n{{}}\\n### Answer:\\n{{}}".format(q, a){end})
    return {{"text": texts}}
data = rows.map(write, batched=True).train_test_split(0.1)
SFTTrainer(model=model, train_dataset=data["train"], args=SFTConfig("out")).train()
"""
SHORT = "encode = lambda row: tok(f\"Q: {row['q']} A: {row['a']}\", truncation=True)\n"
KEPT_LOADER = 'DataLoader(Kept("a.jsonl", tok))'


@pytest.mark.parametrize(
    "text",
    [
        LOADED
        + ROWS
        + COLLATE.format(text='"Q: " + row["q"] + " A: " + row["a"]')
        + LOOP.format(batches=BATCHES),
        LOADED
        + ROWS
        + COLLATE.format(text='row["prompt"] + row["completion"]')
        + LOOP.format(batches=BATCHES),
        LOADED + KEPT.format(end="") + LOOP.format(batches=KEPT_LOADER),
        OPENED + TRAIN,
        SHORT + TRAIN,
        SHORT + BY_SFT,
        FORMATTED.format(end=""),
    ],
)
def test_rows_are_followed_to_their_training(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == ["warning"]


@pytest.mark.parametrize(
    "text",
    [
        LOADED
        + ROWS
        + COLLATE.format(text='row["q"] + row["a"] + tok.eos_token')
        + LOOP.format(batches=BATCHES),
        LOADED
        + ROWS
        + COLLATE.format(text='"Q: " + row["q"] + " A: " + row["a"] + " ### End"')
        + LOOP.format(batches=BATCHES),
        LOADED
        + ROWS
        + COLLATE.format(text='row["q"] + finished(row["a"])')
        + LOOP.format(batches=BATCHES),
        LOADED + ROWS + COLLATE.format(text='row["text"]') + LOOP.format(batches=BATCHES),
        LOADED + KEPT.format(end=" + [tokenizer.eos_token_id]") + LOOP.format(batches=KEPT_LOADER),
        LOADED
        + KEPT.format(end="")
        + "print(len(Kept('a.jsonl', tok)))\n"
        + LOOP.format(batches="made_elsewhere"),
        OPENED.replace("add_generation_prompt=True", "add_generation_prompt=False") + TRAIN,
        FORMATTED.format(end=" + tok.eos_token"),
        FORMATTED.format(end="").replace(
            "from unsloth import FastLanguageModel", "from elsewhere import FastLanguageModel"
        ),
        SHORT
        + "rows.filter(lambda row: len(encode(row)['input_ids']) < 99)\n"
        + TRAIN.replace("rows.map(encode)", "rows"),
    ],
)
def test_followed_rows_that_may_end_are_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == []
