"""Labels that are counted from the side of the pads, and those that are counted from the other or before padding."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.settings.run_spec import RunSpec
from truetune.source.parsed_source_file import parse_module

HEAD = """
import numpy as np
import torch
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("some/model"SIDE)
model = AutoModelForCausalLM.from_pretrained("some/model")
rows = load_dataset("json", data_files="rows.jsonl", split="train")
"""
MAPPED = (
    HEAD
    + """
def encode(row):
    answer = row["answer"] + tok.eos_token
    n = len(tok(answer, add_special_tokens=False)["input_ids"])
    p = len(tok(row["question"], add_special_tokens=False)["input_ids"])
    enc = tok(row["question"] + answer, truncation=True, max_length=512, padding="max_length"TENSORS)
    BODY
    return {"input_ids": enc["input_ids"], "attention_mask": enc["attention_mask"], "labels": labels}
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows.map(encode)).train()
"""
)
COLLATED = (
    HEAD
    + """
def encode(row):
    prompt = tok(row["question"], add_special_tokens=False)["input_ids"]
    answer = tok(row["answer"], add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + answer, "answer_len": len(answer), "prompt_len": len(prompt)}
def collate(features):
    ids = pad_sequence([torch.tensor(f["input_ids"]) for f in features], batch_first=True, padding_value=0)
    labels = ids.clone()
    for i, f in enumerate(features):
        BODY
    return {"input_ids": ids, "labels": labels}
Trainer(
    model=model, args=TrainingArguments("out"), train_dataset=rows.map(encode), data_collator=collate
).train()
"""
)
BY_HAND = (
    HEAD
    + """
def encode(row):
    prompt = tok(row["question"], add_special_tokens=False)["input_ids"]
    answer = tok(row["answer"], add_special_tokens=False)["input_ids"]
    ids = prompt + answer
    ids = ids + [tok.pad_token_id] * (512 - len(ids))
    BODY
    return {"input_ids": ids, "labels": labels}
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows.map(encode)).train()
"""
)
BY_TORCH = BY_HAND.replace(
    "ids + [tok.pad_token_id] * (512 - len(ids))",
    "torch.nn.functional.pad(torch.tensor(ids), WIDTHS, value=tok.pad_token_id)",
)
OF_ANSWER = ("labels = ids.clone()", "labels[: -len(answer)] = -100")
OF_PROMPT = ("labels = ids.clone()", "labels[: len(prompt)] = -100")


def code(text: str, *body: str, side: str = "", tensors: bool = False) -> str:
    indent = "        " if text is COLLATED else "    "
    given = f', padding_side="{side}"' if side else ""
    made = text.replace("BODY", f"\n{indent}".join(body)).replace("SIDE", given)
    return made.replace("TENSORS", ', return_tensors="pt"' if tensors else "")


TENSOR = 'ids = enc["input_ids"][0]'
FIRING = {
    "tensor": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:-n] = -100", side="right", tensors=True
    ),
    "batch of one": code(
        MAPPED,
        'labels = enc["input_ids"].clone()',
        "labels[:, :-n] = -100",
        side="right",
        tensors=True,
    ),
    "kept": code(
        MAPPED,
        TENSOR,
        "labels = torch.full_like(ids, -100)",
        "labels[-n:] = ids[-n:]",
        side="right",
        tensors=True,
    ),
    "kept of a batch": code(
        MAPPED,
        'ids = enc["input_ids"]',
        "labels = torch.full_like(ids, -100)",
        "labels[:, -n:] = ids[:, -n:]",
        side="right",
        tensors=True,
    ),
    "joined": code(
        MAPPED,
        'ids = enc["input_ids"]',
        "labels = [-100] * (len(ids) - n) + ids[-n:]",
        side="right",
    ),
    "numpy": code(
        MAPPED, 'labels = np.array(enc["input_ids"])', "labels[:-n] = -100", side="right"
    ),
    "length less answer": code(
        MAPPED,
        TENSOR,
        "labels = ids.clone()",
        "labels[: 512 - n] = -100",
        side="right",
        tensors=True,
    ),
    "prompt under left padding": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:p] = -100", side="left", tensors=True
    ),
    "by hand": code(
        BY_HAND, "labels = list(ids)", "labels = [-100] * (512 - len(answer)) + ids[-len(answer):]"
    ),
    "cat": code(
        MAPPED,
        TENSOR,
        "labels = torch.cat([torch.full((512 - n,), -100), ids[-n:]])",
        side="right",
        tensors=True,
    ),
    "torch on the right": code(BY_TORCH.replace("WIDTHS", "(0, 512 - len(ids))"), *OF_ANSWER),
    "torch on the left": code(BY_TORCH.replace("WIDTHS", "(512 - len(ids), 0)"), *OF_PROMPT),
}
PERHAPS = {
    "side not set": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:-n] = -100", tensors=True
    ),
    "collator": code(COLLATED, 'labels[i, : -f["answer_len"]] = -100'),
}
SOUND = {
    "counted from the other end": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:p] = -100", side="right", tensors=True
    ),
    "left padding": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:-n] = -100", side="left", tensors=True
    ),
    "pads are counted in": code(
        MAPPED,
        TENSOR,
        'pads = 512 - int(enc["attention_mask"].sum())',
        "labels = ids.clone()",
        "labels[: -(n + pads)] = -100",
        side="right",
        tensors=True,
    ),
    "not padded": code(
        MAPPED.replace(', padding="max_length"', ""),
        TENSOR,
        "labels = ids.clone()",
        "labels[:-n] = -100",
        side="right",
        tensors=True,
    ),
    "a tokenizer of the left": code(
        MAPPED.replace("some/model", "google/gemma-2-2b-it"),
        TENSOR,
        "labels = ids.clone()",
        "labels[:-n] = -100",
        tensors=True,
    ),
    "cut before the padding": code(
        BY_HAND,
        "labels = [-100] * len(prompt) + answer",
        "labels = labels + [-100] * (512 - len(labels))",
    ),
    "collator from the front": code(COLLATED, 'labels[i, : f["prompt_len"]] = -100'),
    "by the mask": code(
        MAPPED,
        TENSOR,
        "labels = ids.clone()",
        "labels[:p] = -100",
        'labels[enc["attention_mask"][0] == 0] = -100',
        side="right",
        tensors=True,
    ),
    "from the real end": code(
        MAPPED,
        TENSOR,
        'end = int(enc["attention_mask"].sum())',
        "labels = ids.clone()",
        "labels[: end - n] = -100",
        side="right",
        tensors=True,
    ),
    "torch on the other side": code(BY_TORCH.replace("WIDTHS", "(512 - len(ids), 0)"), *OF_ANSWER),
    "torch on a side that a function chooses": code(
        BY_TORCH.replace("WIDTHS", "widths_of(ids)"), *OF_PROMPT
    ),
    "torch on both sides": code(
        BY_TORCH.replace("WIDTHS", "(before, 512 - len(ids) - before)"), *OF_PROMPT
    ),
    "side set later": code(
        MAPPED, TENSOR, "labels = ids.clone()", "labels[:-n] = -100", tensors=True
    ).replace("model = Auto", 'tok.padding_side = "left"\nmodel = Auto'),
}


def severities(text: str) -> list[str]:
    findings = run_rule(
        parse_module(text, "train.py"), find_rule("labels-counted-from-padded-side")
    ).findings
    return [one.severity for one in findings]


@pytest.mark.parametrize("name", FIRING)
def test_labels_of_pads_are_an_error(name: str) -> None:
    assert severities(FIRING[name]) == ["error"]


@pytest.mark.parametrize("name", PERHAPS)
def test_where_not_all_is_known_it_is_a_warning(name: str) -> None:
    assert severities(PERHAPS[name]) == ["warning"]


@pytest.mark.parametrize("name", SOUND)
def test_labels_of_answers_are_left_alone(name: str) -> None:
    assert severities(SOUND[name]) == []


def test_a_loss_near_zero_beside_such_a_script_names_its_line(tmp_path: Path) -> None:
    losses = [3.1, 1.0, 0.3, 0.05, 0.003, 0.001, 0.0008, 0.0006, 0.0005, 0.0004]
    lines = [str({"loss": loss, "epoch": n / 20}) for n, loss in enumerate(losses, 1)]
    (tmp_path / "train.log").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "train.py").write_text(PERHAPS["side not set"], encoding="utf-8")
    report = check_paths([str(tmp_path)], RunSpec())
    [found] = [one for one in report.findings if one.rule == "shortcut-loss"]
    assert "labels on padding" in found.message
    assert "train.py:" in found.remedy
    assert "near zero from record" in found.evidence[0]
