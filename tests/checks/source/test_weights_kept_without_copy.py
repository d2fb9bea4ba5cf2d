"""Weights that are kept under a second name while the training goes on."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import copy
import torch
from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
FAULTY = {
    "the best state": """
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_state = model.state_dict()
model.load_state_dict(best_state)
""",
    "a copy of the dictionary alone": """
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_state = dict(model.state_dict())
torch.save(best_state, "best.pt")
""",
    "the state that each fold begins with": """
initial_state = model.state_dict()
for fold in folds:
    model.load_state_dict(initial_state)
    for batch in fold:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "an attribute of a class": """
class Runner:
    def step(self, batch):
        self.model(**batch).loss.backward()
        self.optimizer.step()

    def validate(self):
        if evaluate(self.model) < self.best:
            self.best_weights = self.model.state_dict().copy()

    def fit(self):
        for batch in loader:
            self.step(batch)
            self.validate()
        self.model.load_state_dict(self.best_weights)


Runner().fit()
""",
    "parameters before a trainer": """
before = {name: value.detach() for name, value in model.named_parameters()}
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
print(sum((value - before[name]).norm() for name, value in model.named_parameters()))
""",
    "the best model": """
best_model = model
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_model = model
best_model.save_pretrained("out")
""",
    "a way back within a pass": """
for batch in loader:
    backup = model.state_dict()
    model(**batch).loss.backward()
    optimizer.step()
    if evaluate(model) > limit:
        model.load_state_dict(backup)
""",
}
RIGHT = {
    "a deep copy": """
best_state = copy.deepcopy(model.state_dict())
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_state = copy.deepcopy(model.state_dict())
model.load_state_dict(best_state)
""",
    "cloned tensors": """
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        state = model.state_dict()
        best_state = {name: value.detach().cpu().clone() for name, value in state.items()}
model.load_state_dict(best_state)
""",
    "written where it is taken": """
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    state = model.state_dict()
    torch.save(state, "last.pt")
""",
    "a model of each seed": """
for seed in range(3):
    model = AutoModelForCausalLM.from_pretrained("model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_state = model.state_dict()
torch.save(best_state, "best.pt")
""",
    "parameters for an optimizer": """
trained = [value for value in model.parameters() if value.requires_grad]
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
""",
    "the state of an optimizer": """
for batch in loader:
    state = optimizer.state_dict()
    model(**batch).loss.backward()
    optimizer.step()
print(state)
""",
    "sharded weights, which are gathered": """
from torch.distributed.fsdp import FullyShardedDataParallel
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if evaluate(model) < best:
        best_state = model.state_dict()
model.load_state_dict(best_state)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message for one in run_rule(module, find_rule("weights-kept-without-copy")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_kept_by_reference(case: str) -> None:
    """What the training changes is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_kept_as_a_copy(case: str) -> None:
    """A copy, and what is read where it is taken, are right."""
    assert findings_of(RIGHT[case]) == []
