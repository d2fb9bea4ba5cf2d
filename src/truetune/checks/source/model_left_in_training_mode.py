"""A model is evaluated, or generates, while it is in training mode.

## What it does
Traces, in a symbolic run, the model of each generation and of each forward pass without gradients (`torch.no_grad()` as
a block or decorator), and the last call before it that set the model's mode: `train()`, `eval()`, Unsloth's switches, a
Trainer's training or evaluation, an adapter loaded with `is_trainable=True`. A module of the project with dropout
starts in training mode. Callbacks in `on_step_end` or `on_epoch_end`, and Lightning's hooks, get the model in training
mode. It does not report families of models without dropout if nothing adds any.

## Why it is bad
Dropout stays on: answers and evaluation losses are noisy and too bad, and a reference model's log-probabilities differ
from pass to pass.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.train()
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.train()
model.eval()
out = model.generate(**tokenizer("Hi", return_tensors="pt"), max_new_tokens=20)
```

## Fix safety
Safe, if `model.train()` follows before training continues. Evaluation losses get lower and repeatable.

## References
- huggingface/trl#744, huggingface/trl#2042, eric-mitchell/direct-preference-optimization#34
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.models_evaluated_in_training_mode import (
    FOR_TRAINING,
    TRAINABLE_LOAD,
    uses_in_training_mode,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OTHER_SWITCH = re.compile(r"\.training = |\.eval\b(?!\()")
"""Ways to switch the mode that are not followed: the attribute, and the method that is handed on"""
ENTRIES_OF_MODEL = ("kwargs['model']", "kwargs.get('model')")
HOOKS_IN_TRAINING = frozenset(("on_step_end", "on_substep_end", "on_epoch_end"))
"""Methods of a TrainerCallback that run behind a training step, which switched the mode on; `on_evaluate` is none"""


def _switches_to_training_mode(module: Module) -> Iterator[Call]:
    """Calls that switch a model to training: `model.train()`, Unsloth's, and a load of an adapter to be trained."""
    yield from (
        call
        for call in module.methods("train")
        if _is_train_call_on_model_without_mode(module, call)
    )
    yield from module.calls(FOR_TRAINING)
    for call in module.calls(TRAINABLE_LOAD):
        if module.flow.value(call.keywords.get("is_trainable")) is True:
            yield call


def _generations_in_trainer_callbacks(module: Module) -> Iterator[Call]:
    """Calls of `generate` on the model that a trainer gives to a callback behind a training step."""
    for call in module.methods("generate"):
        hook = next(
            (node for node in module.parents(call.node) if isinstance(node, ast.FunctionDef)), None
        )
        if hook is None or hook.name not in HOOKS_IN_TRAINING or call.receiver is None:
            continue
        if _is_model_given_to_callback(module, hook, call.receiver):
            yield call


def _is_model_given_to_callback(module: Module, hook: ast.FunctionDef, model: ast.expr) -> bool:
    """Is it the model that the trainer hands to a callback: its parameter, or `kwargs["model"]`?"""
    parameters = [part.arg for part in (*hook.args.args, *hook.args.kwonlyargs)]
    if ast.unparse(model) == "model" and "model" in parameters:
        return True
    origins = [origin.node for origin in module.flow.origins(model)]
    return any(ast.unparse(node) in ENTRIES_OF_MODEL for node in origins)


class ModelLeftInTrainingMode(SourceRule):
    code = "SRC053"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces(
        "models that are switched to training, or generate",
        lambda module: (
            *_switches_to_training_mode(module),
            *generate_calls(module),
            *_generations_in_trainer_callbacks(module),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(OTHER_SWITCH.search(part.text) for part in module.self_and_files_run_together):
            return
        yield from self._findings_on_generation_in_callbacks()
        for one in uses_in_training_mode(module):
            places = [
                case_of_node(one.use.home, one.use.node),
                case_of_node(one.switch.home, one.switch.node),
            ]
            yield self.finding(
                f"the model is evaluated in training mode: {_effects_of_training_mode(module)}",
                "call model.eval() before this line, and model.train() after it if training continues",
                cases=places,
            )
            return

    def _findings_on_generation_in_callbacks(self) -> Iterator[Finding]:
        """Findings on callbacks that generate behind a training step; any switch to eval() in the
        program silences it.
        """
        module = self.subject
        if any(True for part in module.self_and_files_run_together for _ in part.methods("eval")):
            return
        for call in _generations_in_trainer_callbacks(module):
            yield self.finding(
                f"the callback generates while the model is in training mode: {_effects_of_training_mode(module)}",
                "call model.eval() before it generates, and model.train() after",
                cases=[case_of_node(module, call.node)],
            )


def _effects_of_training_mode(module: Module) -> str:
    """What training mode changes, in words: dropout, and that of LoRA where the script sets it."""
    given = (
        call.keywords["lora_dropout"]
        for call in module.all_calls
        if "lora_dropout" in call.keywords
    )
    rates = [rate for rate in map(module.flow.value, given) if isinstance(rate, float) and rate > 0]
    if rates:
        return f"lora_dropout={rates[0]:g} is on, so losses and answers are worse, and differ each time"
    return "dropout is on (if the model has any), so results are worse and differ each time"


def _is_train_call_on_model_without_mode(module: Module, call: Call) -> bool:
    """Is the receiver a model, and the call without a mode?"""
    return (
        call.receiver is not None and "model" in module.flow.types(call.receiver) and not call.args
    )
