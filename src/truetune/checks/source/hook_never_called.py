"""A method of a callback, a trainer or a Lightning module has a name that the library never calls.

## What it does
Looks at classes that extend `TrainerCallback`, a trainer of transformers or TRL, or a `LightningModule`. In a callback
it reports events of other libraries (`on_batch_end`, `on_evaluation_end`). In all of them it reports methods whose name
is a letter away from one that the library calls (`training_steps`, `compute_losses`). A method that the files call is
not reported.

## Why it is bad
Python accepts any name. A callback that should stop the training, log or save is never called; a custom loss is never
computed, and the trainer uses its own.

## Example
```python
from transformers import Trainer, TrainerCallback

class StopAtTarget(TrainerCallback):
    def on_evaluation_end(self, args, state, control, metrics=None, **kwargs):
        control.should_training_stop = metrics["eval_loss"] < 0.9

trainer = Trainer(model=model, args=args, train_dataset=rows, callbacks=[StopAtTarget()])
trainer.train()
```

## Use instead
```python
from transformers import Trainer, TrainerCallback

class StopAtTarget(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        control.should_training_stop = metrics["eval_loss"] < 0.9

trainer = Trainer(model=model, args=args, train_dataset=rows, callbacks=[StopAtTarget()])
trainer.train()
```

## Fix safety
There is no automatic fix: several events may be meant.

## References
- https://huggingface.co/docs/transformers/main_classes/callback (transformers 5.23: the events of `TrainerCallback`)
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.names_read_or_spelled_in_files import (
    is_name_read_or_spelled,
)
from truetune.source.parsed_source_file import Module

CALLBACKS = ("transformers.TrainerCallback", "transformers.trainer_callback.TrainerCallback")
EVENTS = (
    "on_init_end",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_evaluate",
    "on_predict",
    "on_save",
    "on_log",
    "on_prediction_step",
    "on_push_begin",
)
"""The events of transformers 5.23; older releases have a part of them"""
EVENTS_OF_OTHERS = {
    "on_evaluation_end": "on_evaluate",
    "on_evaluate_end": "on_evaluate",
    "on_evaluation": "on_evaluate",
    "on_eval_end": "on_evaluate",
    "on_eval": "on_evaluate",
    "on_validation_end": "on_evaluate",
    "on_validation_epoch_end": "on_evaluate",
    "on_test_end": "on_predict",
    "on_predict_end": "on_predict",
    "on_batch_begin": "on_step_begin",
    "on_batch_start": "on_step_begin",
    "on_batch_end": "on_step_end",
    "on_train_batch_begin": "on_step_begin",
    "on_train_batch_start": "on_step_begin",
    "on_train_batch_end": "on_step_end",
    "on_train_step_end": "on_step_end",
    "on_step": "on_step_end",
    "on_step_start": "on_step_begin",
    "on_epoch_start": "on_epoch_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_train_epoch_end": "on_epoch_end",
    "on_train_start": "on_train_begin",
    "on_training_start": "on_train_begin",
    "on_training_begin": "on_train_begin",
    "on_training_end": "on_train_end",
    "on_fit_end": "on_train_end",
    "on_save_checkpoint": "on_save",
    "on_checkpoint": "on_save",
    "on_logging": "on_log",
}
"""Events of Keras and Lightning, and what one takes for events -> the event of transformers"""
TRAINER_METHODS = (
    "compute_loss",
    "training_step",
    "prediction_step",
    "evaluation_loop",
    "get_train_dataloader",
    "get_eval_dataloader",
    "create_optimizer",
    "create_scheduler",
    "save_model",
)
LIGHTNING_METHODS = (
    "training_step",
    "validation_step",
    "test_step",
    "configure_optimizers",
    "train_dataloader",
    "val_dataloader",
    "on_train_epoch_end",
    "on_validation_epoch_end",
    "on_train_batch_end",
)
MIN_LIKENESS = 0.87
"""Likeness of two names, by difflib, from which one is the other misspelled: one letter of eight"""


class UncalledHook(NamedTuple):
    """A method that the library does not call."""

    method: ast.FunctionDef
    owner: ast.ClassDef
    meant: str
    kind: str
    """What the class extends, for readers"""


def classes_with_hooks(module: Module) -> Iterator[tuple[ast.ClassDef, str, tuple[str, ...]]]:
    """The classes that a library calls methods of, each with what it extends and their names."""
    for owner in module.nodes(ast.ClassDef):
        bases = module.flow.bases(owner)
        # With two bases, the other one may call the method.
        if len(owner.bases) != 1:
            continue
        if any(base in CALLBACKS for base in bases):
            yield owner, "TrainerCallback", EVENTS
        elif any(
            base.startswith(("transformers.", "trl.")) and base.endswith("Trainer")
            for base in bases
        ):
            yield owner, "the trainer", TRAINER_METHODS
        elif any("lightning" in base and base.endswith("LightningModule") for base in bases):
            yield owner, "LightningModule", LIGHTNING_METHODS


def hooks_never_called(module: Module) -> Iterator[UncalledHook]:
    """The methods of a file that a library was to call, and does not."""
    for owner, kind, names in classes_with_hooks(module):
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or method.name in names:
                continue
            meant = _method_that_is_meant(method.name, kind, names)
            if (
                meant
                and not method.decorator_list
                and not is_name_read_or_spelled(module, method.name)
            ):
                yield UncalledHook(method, owner, meant, kind)


def _method_that_is_meant(written: str, kind: str, names: tuple[str, ...]) -> str | None:
    """The method of the library that another name is meant as; None where it is a name of one's own."""
    if written.startswith("_"):
        return None
    if kind == "TrainerCallback" and written in EVENTS_OF_OTHERS:
        return EVENTS_OF_OTHERS[written]
    return next(iter(difflib.get_close_matches(written, names, 1, MIN_LIKENESS)), None)


class HookNeverCalled(SourceRule):
    code = "SRC471"
    fault = Fault.CODE_WITHOUT_EFFECT
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("classes whose methods a library calls", classes_with_hooks)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for hook in hooks_never_called(module):
            yield self.finding(
                f"{hook.owner.name}.{hook.method.name} is never called: {hook.kind} has no method of this name",
                f"rename it to {hook.meant}, or to the event that you mean",
                cases=[case_of_node(module, hook.method, f"def {hook.method.name}(...)")],
            )
