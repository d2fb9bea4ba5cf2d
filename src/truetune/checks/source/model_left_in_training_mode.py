"""A model is evaluated or generated from while it is in training mode.

## What it does
Looks for a file that calls `model.train()` or Unsloth's `for_training`, or loads an adapter with `is_trainable=True`,
later generates with the model or runs it under `no_grad` (a block, or the decorator of an evaluation function), and
has not called `eval()` on it until then. Who calls a function decides when it runs, wherever it is defined. A
callback that generates in `on_step_end` or `on_epoch_end` meets a model in training mode, where nothing calls
`eval()`.

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
Safe, with `model.train()` before training continues.

## References
- huggingface/trl#744, huggingface/trl#2042, eric-mitchell/direct-preference-optimization#34
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.run_order import call_chains, may_run_before
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

OTHER_SWITCH = re.compile(r"\.training = |\.eval\b(?!\()")
"""Ways to switch the mode that are not followed: the attribute, and the method that is handed on"""
ENTRIES_OF_MODEL = ("kwargs['model']", "kwargs.get('model')")
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode")


FOR_TRAINING, FOR_INFERENCE = "unsloth.*.for_training", "unsloth.*.for_inference"
"""Unsloth's switches, which take the model as an argument"""
TRAINABLE_LOAD = "peft.PeftModel*.from_pretrained"
"""With `is_trainable=True` it leaves the adapter's dropout on"""
HOOKS_IN_TRAINING = frozenset(("on_step_end", "on_substep_end", "on_epoch_end"))
"""Methods of a TrainerCallback that run behind a training step, which switched the mode on; `on_evaluate` is none"""


def _mode_switches(module: Module) -> Iterator[Call]:
    """Calls that switch a model to training: `model.train()`, Unsloth's, and a load of an adapter to be trained."""
    yield from (call for call in module.methods("train") if _is_model(module, call))
    yield from module.calls(FOR_TRAINING)
    for call in module.calls(TRAINABLE_LOAD):
        if module.flow.value(call.keywords.get("is_trainable")) is True:
            yield call


def _generations_in_hooks(module: Module) -> Iterator[Call]:
    """Calls of `generate` on the model that a trainer gives to a callback behind a training step."""
    for call in module.methods("generate"):
        hook = next(
            (node for node in module.parents(call.node) if isinstance(node, ast.FunctionDef)), None
        )
        if hook is None or hook.name not in HOOKS_IN_TRAINING or call.receiver is None:
            continue
        if _is_model_of_hook(module, hook, call.receiver):
            yield call


def _is_model_of_hook(module: Module, hook: ast.FunctionDef, model: ast.expr) -> bool:
    """Is it the model that the trainer hands to a callback: its parameter, or `kwargs["model"]`?"""
    parameters = [part.arg for part in (*hook.args.args, *hook.args.kwonlyargs)]
    if ast.unparse(model) == "model" and "model" in parameters:
        return True
    origins = [origin.node for origin in module.flow.origins(model)]
    return any(ast.unparse(node) in ENTRIES_OF_MODEL for node in origins)


class ModelLeftInTrainingMode(SourceRule):
    code = "SRC053"
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces(
        "models that are switched to training",
        lambda module: (*_mode_switches(module), *_generations_in_hooks(module)),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # `model.train(flag)` switches by a value that only the run knows.
        by_value = any(call.args or call.keywords for call in module.methods("train"))
        if by_value or any(OTHER_SWITCH.search(part.text) for part in module.with_linked):
            return
        yield from self._of_hooks()
        switched = list(_mode_switches(module))
        for call in module.all_calls:
            if not _is_evaluation(module, call):
                continue
            switch = next((one for one in switched if _is_on_for(module, one, call)), None)
            if switch is not None and not _is_switched_back(module, call):
                yield self.finding(
                    f"the model is used for evaluation in training mode: {_what_is_on(module)}",
                    "call model.eval() before, and model.train() after",
                    cases=[case_at(module, call.node), case_at(module, switch.node)],
                )
                return

    def _of_hooks(self) -> Iterator[Finding]:
        """Callbacks that generate behind a training step; any switch to eval() in the program silences it."""
        module = self.subject
        if any(True for part in module.with_linked for _ in part.methods("eval")):
            return
        for call in _generations_in_hooks(module):
            yield self.finding(
                f"the callback generates while the model is in training mode: {_what_is_on(module)}",
                "call model.eval() before, and model.train() after",
                cases=[case_at(module, call.node)],
            )


def _is_on_for(module: Module, switch: Call, use: Call) -> bool:
    """May the mode have been switched on for the model of a call when it is reached?"""
    same = _model_source(module, use) & _model_source(module, switch)
    return bool(same) and may_run_before(module, switch.node, use.node)


def _is_switched_back(module: Module, use: Call) -> bool:
    """May `eval()` have been called when a model is used: on it, or on what is not known to be another one?"""
    sources = _model_source(module, use)
    for part in module.with_linked:
        for call in (*part.methods("eval"), *part.calls(FOR_INFERENCE)):
            others = _model_source(module, call)
            is_other = bool(others) and all(isinstance(node, ast.Call) for node in others)
            if is_other and not others & sources:
                continue
            if may_run_before(module, call.node, use.node):
                return True
    return False


def _what_is_on(module: Module) -> str:
    """What training mode changes, as far as the script says."""
    given = (
        call.keywords["lora_dropout"]
        for call in module.all_calls
        if "lora_dropout" in call.keywords
    )
    rates = [rate for rate in map(module.flow.value, given) if isinstance(rate, float) and rate > 0]
    if rates:
        return f"lora_dropout={rates[0]:g} is on, so losses and answers are worse, and differ each time"
    return "dropout is on, if the model has any"


def _is_model(module: Module, call: Call) -> bool:
    """Is the receiver a model, and the call without a mode?"""
    return (
        call.receiver is not None and "model" in module.flow.types(call.receiver) and not call.args
    )


def _model_source(module: Module, call: Call) -> set[ast.AST]:
    """What made the model that is called, or whose method is."""
    if call.named(TRAINABLE_LOAD):
        return {call.node}
    is_method = call.method in ("train", "eval", "generate")
    if call.named(FOR_TRAINING, FOR_INFERENCE):
        model = call.argument(0, "model")
    else:
        model = call.receiver if is_method else call.node.func
    return {origin.node for origin in module.flow.origins(model)} if model is not None else set()


def _is_evaluation(module: Module, call: Call) -> bool:
    """Does a call generate, or run a model without gradients?"""
    if call.method == "generate" and call.receiver is not None:
        return "model" in module.flow.types(call.receiver)
    # A function that computes log-probabilities is called for the policy with gradients, and for a reference without.
    return "model" in module.flow.types(call.node.func) and all(
        any(_is_without_gradient(module, link) for link in chain)
        for chain in call_chains(module, call.node)
    )


def _is_without_gradient(module: Module, node: ast.AST) -> bool:
    """Does a place stand under `with torch.no_grad():`, or in a function that it decorates?"""
    for around in module.parents(node):
        if isinstance(around, ast.With):
            contexts = [item.context_expr for item in around.items]
        elif isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            contexts = around.decorator_list
        else:
            continue
        if any(_is_no_gradient(module, context) for context in contexts):
            return True
    return False


def _is_no_gradient(module: Module, node: ast.expr) -> bool:
    """Is it a context in which no gradient is recorded?"""
    named = node.func if isinstance(node, ast.Call) else node
    return module.flow.name(named) in NO_GRADIENT
