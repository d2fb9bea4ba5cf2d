"""Skips of a resumed run: made in each epoch again, or only in the one that was interrupted."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from accelerate import skip_first_batches
from itertools import islice
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
first = skip = 0
if args.resume_from:
    saved = torch.load(args.resume_from)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first, skip = divmod(saved["step"], len(loader))
"""
STEP = """
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
EPOCHS = "for epoch in range(first, 3):\n"
FAULTY = {
    "a slice": EPOCHS + "    for batch in DataLoader(rows.select(order[skip:])):" + STEP,
    "islice": EPOCHS + "    for batch in islice(loader, skip, None):" + STEP,
    "accelerate": EPOCHS + "    for batch in skip_first_batches(loader, skip):" + STEP,
    "accelerate by name": EPOCHS
    + "    for batch in skip_first_batches(loader, num_batches=skip):"
    + STEP,
    "under its own condition": EPOCHS
    + "    shown = loader\n    if skip > 0:\n        shown = skip_first_batches(loader, skip)\n"
    + "    for batch in shown:"
    + STEP,
    "a condition on the batch": EPOCHS
    + "    for number, batch in enumerate(loader):\n        if number < skip:\n            continue"
    + STEP,
    "in a function": "def train(loader, skip):\n    for batch in islice(loader, skip, None):"
    + STEP
    + EPOCHS
    + "    train(loader, skip)\n",
}
RIGHT = {
    "reset at the end": FAULTY["a slice"] + "    skip = 0\n",
    "reset in a branch": FAULTY["islice"] + "    if epoch == first:\n        skip = 0\n",
    "only in the first epoch": EPOCHS
    + "    shown = skip_first_batches(loader, skip) if epoch == first else loader\n"
    + "    for batch in shown:"
    + STEP,
    "a condition with the epoch": EPOCHS
    + "    for number, batch in enumerate(loader):\n"
    + "        if epoch == first and number < skip:\n            continue"
    + STEP,
    "a count of the whole run": EPOCHS
    + "    for batch in loader:\n        total += 1\n        if total < skip:\n            continue"
    + STEP,
    "no resume": EPOCHS + "    for batch in islice(loader, header, None):" + STEP,
    "a part of each batch": EPOCHS
    + "    for batch in loader:\n        batch = {'labels': batch['labels'][:, 1:][skip:]}"
    + STEP,
    "the end of a list": EPOCHS + "    for batch in DataLoader(order[:skip]):" + STEP,
}


def lines_of(text: str) -> list[int | None]:
    """The lines of the first places of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    found = run_rule(module, find_rule("resume-skip-never-reset")).findings
    return [one.cases[0].line for one in found]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_skipped_in_each_epoch(case: str) -> None:
    """The place that skips is named, once."""
    assert len(lines_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_skipped_once(case: str) -> None:
    """A skip that is reset, or asks for the epoch, is right."""
    assert lines_of(RIGHT[case]) == []
