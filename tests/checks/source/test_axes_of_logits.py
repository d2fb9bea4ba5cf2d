"""The axis that a softmax or an argmax of logits goes over."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
model = AutoModelForCausalLM.from_pretrained("model").to("cuda").eval()
classifier = AutoModelForSequenceClassification.from_pretrained("classifier").eval()
"""
FAULTY = {
    "rows of a classifier": """
probabilities = torch.softmax(classifier(**batch).logits, dim=0)
""",
    "tokens of a language model": """
logits = model(ids).logits[:, :-1, :]
chosen = logits.log_softmax(1)
""",
    "the best token": """
guess = model(ids).logits.argmax(dim=1)
""",
}
RIGHT = {
    "an axis that is not there, at which torch stops": """
a = torch.softmax(classifier(**batch).logits, dim=-3)
""",
    "the temperature of a gumbel softmax": """
soft = torch.nn.functional.gumbel_softmax(model(ids).logits, 1, hard=True)
""",
    "the last axis": """
logits = model(ids).logits
a = torch.softmax(logits, dim=-1)
b = logits.argmax(2)
c = torch.softmax(classifier(**batch).logits, dim=1)
""",
    "one token": """
logits = model(ids).logits
a = logits[:, -1].softmax(1)
b = logits[0].argmax(1)
""",
    "another shape": """
logits = model(ids).logits.transpose(1, 2)
a = logits.softmax(dim=1)
""",
    "a model that is not known": """
logits = other(ids).logits
a = logits.softmax(dim=0)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message for one in run_rule(module, find_rule("softmax-over-the-wrong-axis")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_wrong_axis(case: str) -> None:
    """The reduction is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_classes(case: str) -> None:
    """The last axis, and shapes that are not known, are right."""
    assert findings_of(RIGHT[case]) == []
