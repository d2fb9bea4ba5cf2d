"""Runs that are resumed in the middle of an epoch: at their first batch again, or where they stopped."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import itertools, os, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
loader = DataLoader(rows, batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
step = first = 0
"""
RESTORE = """
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step, first = saved["step"], saved["epoch"]
"""
BODY = """
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
"""
SAVE = """
        if step % 100 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
"""
LOOP = "for epoch in range(first, 3):\n    for batch in loader:" + BODY + SAVE
PLAIN = HEAD + RESTORE + LOOP
ACCELERATE = (
    HEAD
    + "accelerator = Accelerator()\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    + "if args.resume_from:\n    accelerator.load_state(args.resume_from)\n"
    + "    step = int(args.resume_from.rsplit('-', 1)[1])\n    first = step // len(loader)\n"
    + LOOP.replace("loss.backward()", "accelerator.backward(loss)").replace(
        'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")',
        "accelerator.save_state(f'out/step-{step}')",
    )
)
TAKEN_UP = (
    HEAD
    + (
        "def load_checkpoint(path):\n    saved = torch.load(path)\n    model.load_state_dict(saved['model'])\n"
        "    optimizer.load_state_dict(saved['optimizer'])\n    return saved['step']\n"
        "if os.path.exists('last.pt'):\n    step = load_checkpoint('last.pt')\n"
    )
    + LOOP
)
CLASS = """
import torch
from torch.utils.data import DataLoader
class Loop:
    def __init__(self, model, rows):
        self.model, self.step = model, 0
        self.loader = DataLoader(rows, batch_size=8, shuffle=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    def restore(self, path):
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]
    def save(self):
        torch.save({"model": self.model.state_dict(), "step": self.step}, "last.pt")
    def run(self):
        for batch in self.loader:
            self.model(**batch).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.step % 100 == 0:
                self.save()
"""
ENUMERATED = PLAIN.replace("for batch in loader", "for i, batch in enumerate(tqdm(loader))")
BEST = 'torch.save(model.state_dict(), "best.pt")'
WHOLE = 'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")'
FAULTY = {
    "in two files": PLAIN.replace(
        WHOLE, BEST + '\n            torch.save(optimizer.state_dict(), "optimizer.pt")'
    ),
    "torch": PLAIN,
    "accelerate": ACCELERATE,
    "a function": TAKEN_UP,
    "a class": CLASS,
    "enumerated": ENUMERATED,
}
SOUND = {
    "skip_first_batches": ACCELERATE.replace(
        "    for batch in loader:",
        "    part = accelerator.skip_first_batches(loader, step % len(loader)) if epoch == first else loader\n"
        "    for batch in part:",
    ),
    "islice": PLAIN.replace("in loader:", "in itertools.islice(loader, step % len(loader), None):"),
    "goes on": ENUMERATED.replace(
        BODY, "\n        if epoch == first and i < step % len(loader):\n            continue" + BODY
    ),
    "goes on by a name": ENUMERATED.replace(
        BODY, "\n        if epoch == first and i < done:\n            continue" + BODY
    ).replace("for epoch", "done = step % len(loader)\nfor epoch", 1),
    "drawn and dropped": PLAIN.replace("for batch in loader:", "for batch in batches:").replace(
        "for epoch in",
        "batches = iter(loader)\nfor _ in range(step):\n    next(batches)\nfor epoch in",
    ),
    "rows are cut": PLAIN.replace(
        "for epoch in", "loader = DataLoader(rows[step * 8 :], batch_size=8)\nfor epoch in", 1
    ),
    "state of the loader": PLAIN.replace(
        "    step, first", "    loader.load_state_dict(saved['loader'])\n    step, first"
    ),
    "another order": PLAIN.replace("for epoch in", "torch.manual_seed(step)\nfor epoch in", 1),
    "saves at the end of epochs": PLAIN.replace(SAVE, "\n" + SAVE.replace("\n    ", "\n")),
    "saves at the last batch": ENUMERATED.replace("if step % 100 == 0", "if i == len(loader) - 1"),
    "saves the best weights on the way": PLAIN.replace(WHOLE, BEST) + "\n    " + WHOLE,
    "saves weights by a name": PLAIN.replace(
        WHOLE, 'best = model.state_dict()\n            torch.save(best, "best.pt")'
    ),
    "draws rows at random": PLAIN.replace(
        "shuffle=True", "sampler=torch.utils.data.RandomSampler(rows, replacement=True)"
    ),
    "weights alone": PLAIN.replace('    optimizer.load_state_dict(saved["optimizer"])\n', ""),
    "steps begin again": PLAIN.replace('    step, first = saved["step"], saved["epoch"]\n', ""),
    "never resumed": HEAD + LOOP,
}


def count_of(code: str) -> int:
    rule = find_rule("resumed-run-repeats-its-rows")
    return len(run_rule(parse_module(code, "train.py"), rule).findings)


@pytest.mark.parametrize("name", FAULTY)
def test_a_loop_that_begins_again_is_found(name: str) -> None:
    assert count_of(FAULTY[name]) == 1


@pytest.mark.parametrize("name", SOUND)
def test_a_loop_that_goes_on_is_left_alone(name: str) -> None:
    assert count_of(SOUND[name]) == 0
