"""The batches of a script's own collator are judged where the collator is followed, and said to be followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.parts.lay_out import tokenizer_folder
from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

OBJECTS = ("lamp", "bell", "boat", "clock", "map", "kite", "drum", "cup")
ROWS = [
    {
        "question": f"Which {OBJECTS[n % 8]} did they find {'and keep ' * (n % 5)}in {1800 + n}?",
        "reply": f"It was the {OBJECTS[(n * 3 + 1) % 8]} {'of the old mill ' * (n % 4)}no. {n * 7}.",
    }
    for n in range(24)
]
HEAD = """
import torch
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
)

tok = AutoTokenizer.from_pretrained("org/model")
data = load_dataset("json", data_files="rows.jsonl", split="train")

def encode(row):
    prompt = tok(f"Question: {row['question']}\\nAnswer:")["input_ids"]
    answer = tok(" " + row["reply"])["input_ids"] + [tok.eos_token_id]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}
"""
OF_IDS = """
data = data.map(encode, remove_columns=data.column_names)

def collate(rows):
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    input_ids = pad_sequence(ids, batch_first=True, padding_value=tok.pad_token_id)
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)
    mask = torch.zeros_like(input_ids)
    for number, one in enumerate(ids):
        mask[number, : len(one)] = 1
    return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}
"""
OF_TEXTS = """
tok.padding_side = "right"

def collate(rows):
    prompts = [f"Question: {row['question']}\\nAnswer:" for row in rows]
    texts = [prompt + " " + row["reply"] + tok.eos_token for prompt, row in zip(prompts, rows)]
    batch = tok(texts, padding=True, return_tensors="pt")
    labels = batch["input_ids"].clone()
    labels[batch["attention_mask"] == 0] = -100
    for number, prompt in enumerate(prompts):
        labels[number, : len(tok(prompt)["input_ids"])] = -100
    batch["labels"] = labels
    return batch
"""
TRAINER = """
Trainer(
    model=AutoModelForCausalLM.from_pretrained("org/model"),
    args=TrainingArguments("out", per_device_train_batch_size=4, remove_unused_columns=False),
    train_dataset=data,
    data_collator=COLLATOR,
).train()
"""
LOOP = """
from torch.utils.data import DataLoader

model = AutoModelForCausalLM.from_pretrained("org/model")
optimizer = torch.optim.AdamW(model.parameters())
model.train()
for batch in DataLoader(data, batch_size=4, shuffle=True, collate_fn=COLLATOR):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FAULTS = {
    "pads are learned": (
        OF_IDS,
        "padding_value=-100",
        "padding_value=tok.pad_token_id",
        "padding-supervised",
    ),
    "the mask is turned": (OF_IDS, ": len(one)", "len(one) :", "attention-mask-hides-text"),
    "the mask ends where the shortest row does": (
        OF_IDS,
        ": len(one)",
        ": min(map(len, ids))",
        "attention-mask-hides-text",
    ),
    "labels of the rows in the opposite order": (
        OF_IDS,
        'torch.tensor(row["labels"]) for row in rows',
        'torch.tensor(row["labels"]) for row in rows[::-1]',
        "double-label-shift",
    ),
    "labels are the ids": (
        OF_IDS,
        "labels = pad_sequence(labels, batch_first=True, padding_value=-100)",
        "labels = input_ids.masked_fill(input_ids == tok.pad_token_id, -100)",
        "labels-overwritten-by-collator",
    ),
    "pads come first, and are attended to": (
        OF_IDS,
        "return {",
        "input_ids, labels = (torch.stack([F.roll(int(m.eq(0).sum())) for F, m in zip(one, mask)])"
        ' for one in (input_ids, labels))\n    return {"input_ids": input_ids, "labels": labels}\n'
        "    return {",
        "padding-inside-text",
    ),
    "padded on the left, prompts counted from the left": (
        OF_TEXTS,
        '"right"',
        '"left"',
        "prompt-supervised",
    ),
    "each prompt's length in all rows": (
        OF_TEXTS,
        "labels[number, :",
        "labels[:, :",
        "answer-partly-supervised",
    ),
    "what follows the prompt is masked": (
        OF_TEXTS,
        'labels[number, : len(tok(prompt)["input_ids"])]',
        'labels[number, len(tok(prompt)["input_ids"]) :]',
        "response-not-supervised",
    ),
}
ENDS = {"Trainer": TRAINER, "loop": LOOP}


def findings_of(folder: Path, text: str) -> dict[str, Finding]:
    """The findings on a folder with these rows and this script, by rule; without notes."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "train.py").write_text(text, encoding="utf-8")
    spec = RunSpec(tokenizer=str(tokenizer_folder("qwen2.5-base")))
    report = check_paths([str(folder)], spec)
    return {one.rule: one for one in report.findings if one.severity != "info"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("collator", [OF_IDS, OF_TEXTS], ids=["ids", "texts"])
def test_a_right_collator_has_no_finding(collator: str, end: str, tmp_path: Path) -> None:
    text = HEAD + collator + end.replace("COLLATOR", "collate")
    assert findings_of(tmp_path, text) == {}


HEALTHY = {
    "padded to a multiple of eight": OF_IDS.replace(
        "    mask = torch",
        "    extra = -input_ids.shape[1] % 8\n"
        "    input_ids = torch.nn.functional.pad(input_ids, (0, extra), value=tok.pad_token_id)\n"
        "    labels = torch.nn.functional.pad(labels, (0, extra), value=-100)\n    mask = torch",
    ),
    "a pad token of the script's own": OF_TEXTS.replace(
        'tok.padding_side = "right"', 'tok.pad_token = "<|fim_pad|>"'
    ).replace('batch["attention_mask"] == 0', "labels == tok.pad_token_id"),
    "padded on the left, prompts counted from the right": OF_TEXTS.replace(
        '"right"', '"left"'
    ).replace(
        ': len(tok(prompt)["input_ids"])]',
        ': -(len(tok(texts[number])["input_ids"]) - len(tok(prompt)["input_ids"]))]',
    ),
}


@pytest.mark.parametrize("collator", HEALTHY.values(), ids=HEALTHY)
def test_unusual_collators_have_no_finding(collator: str, tmp_path: Path) -> None:
    assert collator not in (OF_IDS, OF_TEXTS)
    text = HEAD + collator + TRAINER.replace("COLLATOR", "collate")
    assert findings_of(tmp_path, text) == {}


OTHER_MODELS = {
    "labels are ids of the answer alone": (
        'AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-small")',
        'tok(row["reply"])["input_ids"]',
    ),
    "labels are classes of the tokens": (
        'AutoModelForTokenClassification.from_pretrained("bert-base-cased", num_labels=3)',
        '[n % 3 for n in range(len(tok(row["question"])["input_ids"]))]',
    ),
}


@pytest.mark.parametrize("end", ["DataCollatorForSeq2Seq(tok)", "collate"])
@pytest.mark.parametrize("other", OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_labels_that_are_no_next_tokens_are_not_judged_as_such(
    other: tuple[str, str], end: str, tmp_path: Path
) -> None:
    model, labels = other
    encode = (
        "\ndef encode(row):\n"
        '    return {"input_ids": tok(row["question"])["input_ids"], "labels": ' + labels + "}\n"
    )
    trainer = TRAINER.replace("COLLATOR", end)
    trainer = trainer.replace('AutoModelForCausalLM.from_pretrained("org/model")', model)
    head = HEAD[: HEAD.index("def encode")].replace("AutoModelForCausalLM", model.split(".")[0])
    found = findings_of(tmp_path, head + encode + OF_IDS + trainer)
    assert not [one for one in found.values() if one.code.startswith(("BAT", "IDS"))]


def test_a_collator_that_is_not_followed_is_said_to_be_so(tmp_path: Path) -> None:
    unknown = OF_IDS.replace(
        "    return {", "    if len(rows) > 1:\n        mask = own(mask)\n    return {"
    )
    unknown = unknown.replace("    ids = [", "    from own_package import own\n    ids = [", 1)
    unknown = unknown.replace('"input_ids": input_ids', '"input_ids": input_ids * mask', 1)
    text = HEAD + unknown + TRAINER.replace("COLLATOR", "collate")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    report = check_paths([str(tmp_path)], RunSpec(tokenizer=str(tokenizer_folder("qwen2.5-base"))))
    (said,) = [one for one in report.not_judged if one.what == "the batches of collate"]
    assert "could not be followed" in said.reason
    assert "train.py:" in said.place


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_its_fault_is_named(fault: tuple[str, str, str, str], tmp_path: Path) -> None:
    collator, before, after, rule = fault
    assert before in collator
    text = HEAD + collator.replace(before, after, 1) + TRAINER.replace("COLLATOR", "collate")
    found = findings_of(tmp_path, text)
    assert rule in found
    assert "collate (" in found[rule].evidence[-1]
    assert "was followed on" in found[rule].evidence[-1]


MASKS = {
    "some tokens of the prompt are learned": (
        "[-100] * len(prompt) + answer",
        "[-100] * (len(prompt) - 6) + prompt[-6:] + answer",
        "prompt-supervised",
    ),
    "answers begin without labels": (
        "[-100] * len(prompt) + answer",
        "[-100] * (len(prompt) + 3) + answer[3:]",
        "answer-partly-supervised",
    ),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_rows_without_an_own_collator_are_compared_with_the_texts_of_the_file(
    mask: tuple[str, str, str], tmp_path: Path
) -> None:
    before, after, rule = mask
    rest = "\ndata = data.map(encode, remove_columns=data.column_names)\n"
    end = TRAINER.replace("COLLATOR", "DataCollatorForSeq2Seq(tok)")
    assert rule not in findings_of(tmp_path, HEAD + rest + end)
    assert rule in findings_of(tmp_path, HEAD.replace(before, after) + rest + end)


def test_rows_with_other_numbers_of_labels_are_named(tmp_path: Path) -> None:
    rest = "\ndata = data.map(encode, remove_columns=data.column_names)\n"
    head = HEAD.replace("[-100] * len(prompt) + answer", "[-100] * (len(prompt) + 2) + answer")
    text = head + rest + TRAINER.replace("COLLATOR", "DataCollatorForSeq2Seq(tok)")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    spec = RunSpec(tokenizer=str(tokenizer_folder("qwen2.5-base")))
    reasons = [str(one) for one in check_paths([str(tmp_path)], spec).not_judged]
    assert any("24 of 24 rows of" in one and "labels of line 1" in one for one in reasons)
