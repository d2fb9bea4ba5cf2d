"""Methods that a library calls by their names."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from transformers import Trainer, TrainerCallback
"""
FAULTY = {
    "an event of Keras": """
class Log(TrainerCallback):
    def on_batch_end(self, args, state, control, **kwargs):
        print(state.log_history[-1])
""",
    "a misspelled event": """
class Log(TrainerCallback):
    def on_evaluat(self, args, state, control, **kwargs):
        print(state.log_history[-1])
""",
    "a hand-written loss": """
class Weighted(Trainer):
    def compute_losses(self, model, inputs, return_outputs=False, **kwargs):
        return model(**inputs).loss * 2
""",
}
RIGHT = {
    "events of the trainer": """
class Log(TrainerCallback):
    def on_evaluate(self, args, state, control, **kwargs):
        self.show(state)

    def show(self, state):
        print(state)
""",
    "an event that the files fire": """
class Log(TrainerCallback):
    def on_batch_end(self, args, state, control, **kwargs):
        print(state)


handler.call_event('on_batch_end', args, state, control)
""",
    "a loss under its name": """
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        return self.compute_losses(model, inputs)

    def compute_losses(self, model, inputs):
        return model(**inputs).loss
""",
    "another class": """
class Log:
    def on_batch_end(self):
        print('end')
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("hook-never-called")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_never_called(case: str) -> None:
    """The method is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_called(case: str) -> None:
    """Methods that something calls are right."""
    assert findings_of(RIGHT[case]) == []
