"""A trainer gets an optimizer, and ignores the learning rate or weight decay in its arguments.

## What it does
Looks at trainers of transformers and TRL that get `optimizers=(optimizer, ...)`. It compares the learning rate and the
weight decay of the optimizer, or the defaults of its class, with those in the training arguments. It is an error if the
learning rates differ by a factor of 10 or more, else a warning.

## Why it is bad
A trainer that gets an optimizer creates none itself, and ignores `learning_rate`, `weight_decay` and `optim` of its
arguments. `torch.optim.AdamW(model.parameters())` trains at 1e-3, a hundred times the 1e-5 that the arguments and the
run's log say: this destroys a pretrained model.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
args = TrainingArguments(output_dir="out", learning_rate=1e-5)
optimizer = torch.optim.AdamW(model.parameters())
trainer = Trainer(model=model, args=args, train_dataset=rows, optimizers=(optimizer, None))
trainer.train()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
args = TrainingArguments(output_dir="out", learning_rate=1e-5)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
trainer = Trainer(model=model, args=args, train_dataset=rows, optimizers=(optimizer, None))
trainer.train()
```

## Fix safety
There is no automatic fix: you decide which of the two values is intended. The run then trains with the value in its
log.

## References
- https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Trainer (`optimizers`)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
DEFAULTS = {
    "torch.optim.AdamW": (1e-3, 1e-2),
    "torch.optim.Adam": (1e-3, 0.0),
    "torch.optim.NAdam": (2e-3, 0.0),
}
"""The optimizer -> its learning rate and weight decay where none is given, in torch 2"""
MIN_FACTOR = 10.0
"""How far two rates are apart, as a factor, where the run is surely not the one that was meant. Chosen: rates of one
kind of training differ by five at most"""


class OtherValue(NamedTuple):
    """A setting that the arguments and the optimizer name differently."""

    trainer: Call
    setting: str
    named: float
    """What the arguments say"""
    argument: ast.expr
    taken: float
    """What the optimizer takes"""
    optimizer: Call


def trainers_with_optimizers(module: Module) -> Iterator[tuple[Call, Call]]:
    """The trainers that are given an optimizer, each with the call that makes it."""
    for trainer in module.calls(*TRAINERS):
        optimizers_argument = trainer.argument(-1, "optimizers")
        first = (
            optimizers_argument.elts[0]
            if isinstance(optimizers_argument, ast.Tuple | ast.List) and optimizers_argument.elts
            else None
        )
        call = module.flow.producing_call(first)
        if call is not None and "optimizer" in module.flow.types(call.node):
            yield trainer, call


def settings_differing_from_optimizer(module: Module) -> Iterator[OtherValue]:
    """The learning rates and weight decays that a trainer's arguments and its optimizer name differently."""
    for trainer, optimizer in trainers_with_optimizers(module):
        arguments = module.flow.producing_call(trainer.argument(1, "args"))
        if arguments is None or optimizer.open or _may_have_groups_with_own_rates(optimizer):
            continue
        for setting, taken in _settings_of_optimizer(module, optimizer).items():
            argument = arguments.keywords.get(setting)
            named = _number_of_expression_if_known(module, argument)
            if argument is None or named is None or taken is None or named == taken:
                continue
            yield OtherValue(trainer, setting, named, argument, taken, optimizer)


def _settings_of_optimizer(module: Module, optimizer: Call) -> dict[str, float | None]:
    """The setting of a trainer -> the value that the optimizer takes for it; None where it is not known."""
    rate, decay = next(
        (values for name, values in DEFAULTS.items() if optimizer.named(name)), (None, None)
    )
    given_rate = optimizer.argument(1, "lr")
    given_decay = optimizer.argument(-1, "weight_decay")
    return {
        "learning_rate": rate
        if given_rate is None
        else _number_of_expression_if_known(module, given_rate),
        "weight_decay": decay
        if given_decay is None
        else _number_of_expression_if_known(module, given_decay),
    }


def _number_of_expression_if_known(module: Module, value: ast.expr | None) -> float | None:
    """The number that an expression is; None where it is not known."""
    number = module.flow.value(value)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return float(number) if is_number else None


def _may_have_groups_with_own_rates(optimizer: Call) -> bool:
    """May an optimizer be given groups with rates of their own?"""
    params_argument = optimizer.argument(0, "params")
    return not isinstance(params_argument, ast.Call)


class TrainerTakesTheOptimizersRate(SourceRule):
    code = "SRC470"
    fault = Fault.ANOTHER_LEARNING_RATE_APPLIES
    symptoms = ("loss-does-not-fall", "garbage-output")
    severity = "warning"
    looks_at = CodePlaces("trainers that are given an optimizer", trainers_with_optimizers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for other in settings_differing_from_optimizer(module):
            is_rate = other.setting == "learning_rate"
            factor = other.taken / other.named if other.named else 0.0
            is_far = is_rate and not 1 / MIN_FACTOR < factor < MIN_FACTOR
            yield self.finding(
                f"the run trains with the optimizer's {other.setting} {other.taken:g}, not with the"
                f" {other.named:g} of its arguments: a trainer that gets an optimizer ignores them",
                f"create the optimizer with {'lr' if is_rate else other.setting}=args.{other.setting}, or remove"
                " optimizers= from the trainer",
                cases=[
                    case_of_node(module, other.argument),
                    case_of_node(module, other.optimizer.node),
                ],
                severity="error" if is_far else None,
            )
