"""Metrics compare a causal model's predictions with labels of the same position.

## What it does
Looks at the function given as `compute_metrics` to a trainer of a causal model: are tokens picked by `argmax`, in it or
in `preprocess_logits_for_metrics`, and compared with the label of their own place, without a shift by one? Predictions
and labels are told apart by what the trainer gives, not by their names. Where one of the functions is not in the files,
or nothing is seen to be compared, this is not judged.

In any other function, such as a `validation_step` or a loop of evaluation: are tokens picked by `argmax` from the
logits of a model that is given the labels, and compared with those labels without a shift? Such a model shifts them for
its own loss, so they stand at the places of their ids. Programs that compute a cross-entropy of their own, which may
shift labels elsewhere, are not judged.

## Why it is bad
The logits at a position predict the next token. Unshifted, a model that knows a text by heart scores 0.17 and not 1.0.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions = logits.argmax(-1)
    return {"accuracy": (predictions == labels)[labels != -100].mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, compute_metrics=compute_metrics)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions, labels = logits.argmax(-1)[:, :-1], labels[:, 1:]
    return {"accuracy": (predictions == labels)[labels != -100].mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, compute_metrics=compute_metrics)
```

## Fix safety
The shift changes the figure, and nothing else.

## References
- huggingface/transformers#26474, huggingface/trl#862, unslothai/unsloth#2257, hiyouga/LLaMA-Factory#2040
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.metric_functions import (
    comparisons,
    functions_given,
    given_under,
    is_output_beside_labels,
    picks_tokens,
    scope_of,
    shifts,
    with_called,
)
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

CAUSAL = (
    "transformers.AutoModelForCausalLM.*",
    "transformers.*ForCausalLM*",
    "unsloth.Fast*Model.from_pretrained",
)
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
"""Models whose logits stand for their own row or place; a loader of any model (unsloth's FastModel) may load one"""
OTHER_LOGITS = (*CLASSIFIERS, "Seq2SeqLM", "MaskedLM", "ForConditionalGeneration")
"""Models beside which it is not known whose logits a function reads: those of an encoder and decoder need no shift"""
OWN_LOSSES = ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")
TRAINERS = ("transformers.Trainer", "trl.SFTTrainer")
NOT_SEEN = Unmet(
    "how predictions are made and compared is not seen: a function given to the trainer is not in"
    " these files",
    "name the file that defines compute_metrics and preprocess_logits_for_metrics as well",
)
NOT_COMPARED = Unmet("no argmax of logits is seen to be compared with the labels")


def _loads_causal(module: Module) -> bool:
    """Does the program load a causal model by its class?"""
    return any(call.named(*CAUSAL) for part in module.with_linked for call in part.all_calls)


def trainers_of_causal(module: Module) -> Iterator[Call]:
    """Trainers of causal models that are given compute_metrics."""
    if module.mentions(*CLASSIFIERS):
        return
    is_causal = _loads_causal(module)
    for call in module.calls(*TRAINERS):
        if given_under(module, call, "compute_metrics") is not None and (
            is_causal or call.named("trl.SFTTrainer")
        ):
            yield call


TRAINERS_OF_CAUSAL = CodePlaces(
    "trainers of causal models with compute_metrics", trainers_of_causal
)


def own_steps(module: Module) -> Iterator[ast.AST]:
    """Functions and statements that pick tokens from the logits of a causal model that is given the labels."""
    if (
        module.mentions(*OTHER_LOGITS, *OWN_LOSSES)
        or not module.mentions("logits")
        or not _loads_causal(module)
    ):
        return
    outputs = (node for node in module.nodes(ast.Attribute) if node.attr == "logits")
    scopes = (scope_of(module, node) for node in outputs if is_output_beside_labels(module, node))
    for scope in dict.fromkeys(scopes):
        if any(picks_tokens(node) for node in ast.walk(scope)):
            yield scope


def _places(module: Module) -> Iterator[Call | ast.AST]:
    """Where tokens are picked and may be compared with labels."""
    yield from trainers_of_causal(module)
    yield from own_steps(module)


PLACES = CodePlaces(
    "trainers of causal models with compute_metrics, and steps that compare their tokens with labels",
    _places,
)


class MetricsUnshifted(SourceRule):
    code = "SRC047"
    severity = "error"
    since = "0.1.0"
    looks_at = PLACES

    def unmet(self) -> Unmet | None:
        if (missing := super().unmet()) is not None:
            return missing
        module = self.subject
        for call in trainers_of_causal(module):
            functions = functions_given(module, call)
            if functions is None:
                return NOT_SEEN
            if not shifts(functions) and _unshifted(module, functions) is None:
                return NOT_COMPARED
        for step in own_steps(module):
            if not shifts(with_called(module, [step])) and _first_comparison(module, step) is None:
                return NOT_COMPARED
        return None

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in trainers_of_causal(module):
            functions = functions_given(module, call)
            if functions is None or shifts(functions):
                continue
            if (compared := _unshifted(module, functions)) is not None:
                yield self.finding(
                    "compute_metrics compares predictions with the labels of their own position,"
                    " not of the next",
                    "compare predictions[:, :-1] with labels[:, 1:]",
                    cases=[at(module, compared)],
                )
        for step in own_steps(module):
            compared = _first_comparison(module, step)
            if compared is not None and not shifts(with_called(module, [step])):
                yield self.finding(
                    "predictions are compared with the labels of their own position, not of the next",
                    "compare predictions[:, :-1] with labels[:, 1:]",
                    cases=[at(module, compared)],
                )


def _first_comparison(module: Module, step: ast.AST) -> ast.AST | None:
    """Where a step compares the tokens that it picks with the labels; None where that is not seen."""
    return next(comparisons(module, step), None)


def _unshifted(module: Module, functions: Sequence[ast.AST]) -> ast.AST | None:
    """Where tokens that are picked by argmax are compared with labels; None where that is not seen."""
    if not any(picks_tokens(node) for function in functions for node in ast.walk(function)):
        return None
    return next((node for function in functions for node in comparisons(module, function)), None)
