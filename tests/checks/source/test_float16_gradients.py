"""Losses under float16 autocast, with and without a scale."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
FAULTY = {
    "by dtype": """
for batch in loader:
    with torch.autocast('cuda', dtype=torch.float16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
""",
    "by default": """
for batch in loader:
    with torch.cuda.amp.autocast():
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
""",
}
RIGHT = {
    "a teacher's answers": """
for batch in loader:
    with torch.no_grad(), torch.autocast('cuda', dtype=torch.float16):
        wanted = teacher(**batch).logits
    loss = kl(model(**batch).logits, wanted)
    loss.backward()
    optimizer.step()
""",
    "switched off": """
for batch in loader:
    with torch.cuda.amp.autocast(False):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
""",
    "bfloat16": """
for batch in loader:
    with torch.autocast('cuda', dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
""",
    "scaled": """
grad_scale = torch.amp.GradScaler('cuda')
for batch in loader:
    with torch.autocast('cuda', dtype=torch.float16):
        loss = model(**batch).loss
    grad_scale.scale(loss).backward()
    optimizer.step()
""",
    "by an engine": """
for batch in loader:
    with torch.autocast('cuda', dtype=torch.float16):
        loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
""",
    "an evaluation": """
with torch.autocast('cuda', dtype=torch.float16):
    print(model(**batch).loss)
loss = model(**batch).loss
loss.backward()
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message for one in run_rule(module, find_rule("float16-gradients-not-scaled")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_not_scaled(case: str) -> None:
    """The backward pass is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_right_precision(case: str) -> None:
    """bfloat16 needs no scale, and an engine has its own."""
    assert findings_of(RIGHT[case]) == []
