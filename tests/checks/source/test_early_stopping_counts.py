"""Counts of evaluations without a gain, and the best value beside them."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
patience = 3
"""
FAULTY = {
    "in a class": """
class EarlyStopping:
    def __init__(self, patience=3):
        self.patience = patience
        self.counter = 0
        self.best_score = None
        self.early_stop = False
    def __call__(self, score):
        if self.best_score is None or score > self.best_score:
            self.best_score = score
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.early_stop = True
""",
    "a patience that is used up": """
patience = 5
best = float("inf")
for step, batch in enumerate(loader):
    loss = train(batch)
    if step % 100 == 0:
        val = evaluate()
        if val < best:
            best = val
            model.save_pretrained("best")
        else:
            patience -= 1
        if patience == 0:
            break
""",
    "a gain too small": """
no_improve = 0
prev = 1e9
for epoch in range(20):
    train()
    val = evaluate()
    if prev - val < 1e-4:
        no_improve += 1
    if no_improve >= args.patience:
        print("stop")
        break
    prev = val
""",
    "the best replaced by an earlier condition": """
best = float("inf")
for epoch in range(20):
    train()
    val = evaluate()
    if val < best:
        best = val
    log(best)
    if val < best:
        model.save_pretrained("best")
""",
    "the best replaced by max": """
class T:
    def on_eval(self, acc):
        self.best_acc = max(self.best_acc, acc)
        if acc > self.best_acc:
            self.save()
""",
}
RIGHT = {
    "set back in one assignment with the best": """
best, bad = float("inf"), 0
for epoch in range(20):
    val = evaluate()
    if val < best:
        best, bad = val, 0
    else:
        bad += 1
    if bad >= 3:
        break
errors = 0
for row in rows:
    if row["score"] < threshold:
        errors += 1
    if errors > 100:
        break
""",
    "compared with less or equal": """
best = 0.0
n_found = 0
for epoch in range(20):
    acc = evaluate()
    best = max(best, acc)
    if acc >= best:
        model.save_pretrained("best")
for prompt in prompts:
    score = ask(prompt)
    if score > best_score:
        best_score = score
        best_prompt = prompt
    else:
        tried += 1
for fold in range(5):
    bad = 0
    for epoch in range(5):
        v = evaluate()
        if v < b:
            b = v
            bad = 0
        else:
            bad += 1
        if bad > 2:
            break
""",
    "set back by a method": """
class EarlyStopping:
    def __init__(self, patience=3):
        self.reset()
        self.patience = patience
    def reset(self):
        self.counter = 0
        self.best = None
    def __call__(self, score):
        if self.best is None or score > self.best:
            self.reset()
            self.best = score
        else:
            self.counter += 1
            if self.counter >= self.patience:
                return True
        return False
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("early-stopping-miscounts")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_miscounted(case: str) -> None:
    """The count that is never set back, or the best that is replaced first, is named once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_counted_right(case: str) -> None:
    """A count that anything sets back is right, and so are other counts."""
    assert findings_of(RIGHT[case]) == []
