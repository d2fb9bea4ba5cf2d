"""A loss is given scores on another scale than it takes: probabilities as logits, or logits as log-probabilities.

## What it does
Follows, by a symbolic run, the input of a loss back to the softmax, sigmoid, logarithm, linear layer or model that made
it, through functions, classes and files. It fires if `cross_entropy` or `binary_cross_entropy_with_logits` (or their
classes) get probabilities or the result of argmax, if `nll_loss` gets probabilities or logits, and if `kl_div` gets
anything but log-probabilities as input, or a target that does not fit `log_target`.

## Why it is bad
`cross_entropy` applies log-softmax itself. With probabilities, which lie between 0 and 1, it can't fall below ln(1 + (n
- 1) / e): 0.31 for two classes, 0.74 for four, 6.9 for 1,000. Gradients shrink as well, so the loss hardly moves from
ln n with any learning rate. `nll_loss` negates and averages its input: with logits it falls below zero without limit,
with probabilities it stays between -1 and 0. `kl_div` of probabilities is not a divergence, and may be negative.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
for batch, labels in batches:
    scores = torch.softmax(model(**batch).logits, dim=-1)
    F.cross_entropy(scores, labels).backward()
```

## Use instead
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
for batch, labels in batches:
    F.cross_entropy(model(**batch).logits, labels).backward()
```

## Fix safety
Safe: apply softmax after the loss, where you need probabilities. The loss is on another scale, so it can't be compared
with earlier runs.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html ("unnormalized logits")
- https://docs.pytorch.org/docs/stable/generated/torch.nn.KLDivLoss.html ("expects the argument input in the log-space")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.is_value_logit_or_probability import ScoreScale, score_scale_of
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Result, Value

LOSS_OF_LOGITS = (
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "torch.nn.CrossEntropyLoss",
    "torch.nn.BCEWithLogitsLoss",
)
LOSS_OF_LOGPROBS = ("torch.nn.functional.nll_loss", "torch.nn.NLLLoss")
DIVERGENCES = ("torch.nn.functional.kl_div", "torch.nn.KLDivLoss")
LOSSES = (*LOSS_OF_LOGITS, *LOSS_OF_LOGPROBS, *DIVERGENCES)


@dataclass(frozen=True, slots=True)
class _WrongScale:
    """Scores on another scale than a loss takes."""

    call: CallEvent
    given: ScoreScale
    text: str
    fix: str


def _entropy_and_divergence_calls(module: Module) -> Iterator[ast.Call]:
    """Calls that compute a cross-entropy or a divergence."""
    yield from (call.node for call in module.calls(*LOSSES))


class LossGivenScoresOfAnotherScale(SourceRule):
    code = "SRC120"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("garbage-output", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("losses that are computed or made", _entropy_and_divergence_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        seen: set[ast.AST] = set()
        for trace in traces_of_scripts_that_reach_file(module):
            for call in trace.all_calls:
                if call.home.path != module.path or call.node in seen or call.is_in_later_loop_pass:
                    continue
                wrong_scale = _wrong_scale(call)
                if wrong_scale is None:
                    continue
                seen.add(call.node)
                origin = wrong_scale.given.origin.node
                cases = [case_of_node(module, call.node)]
                # What made the scores may stand in another file, whose places are not known here.
                if origin is not None and origin is not call.node and _is_in_file(module, origin):
                    cases.append(case_of_node(module, origin))
                yield self.finding(wrong_scale.text, wrong_scale.fix, cases=cases)


def _is_in_file(module: Module, node: ast.AST) -> bool:
    """Does a node stand in this file, and in no other that runs with it?"""
    return node in module.scopes.parent


def _loss_function_or_construction(call: CallEvent) -> CallEvent | None:
    """The function of a loss that is called, or the making of the loss object that is; None for any other call."""
    if call.method in ("__call__", "forward") and isinstance(call.receiver, Result):
        made = call.receiver.call
        return made if made.named("torch.nn.*Loss") and made.named(*LOSSES) else None
    return call if call.named("torch.nn.functional.*") and call.named(*LOSSES) else None


def _wrong_scale(call: CallEvent) -> _WrongScale | None:
    """What is wrong with the scores that a loss gets; None where nothing is, or the call is no loss."""
    loss = _loss_function_or_construction(call)
    input_argument = None if loss is None else call.argument(0, "input")
    if loss is None or input_argument is None:
        return None
    if loss.named(*DIVERGENCES):
        return _wrong_input_or_target_of_divergence(call, loss, input_argument)
    score_scale = score_scale_of(input_argument)
    if score_scale is None:
        return None
    if loss.named(*LOSS_OF_LOGITS):
        return _wrong_input_of_cross_entropy(call, score_scale)
    return _wrong_input_of_nll_loss(call, score_scale)


def _wrong_input_of_cross_entropy(call: CallEvent, score_scale: ScoreScale) -> _WrongScale | None:
    """What is wrong with the input of a cross-entropy."""
    if score_scale.scale == "probabilities":
        return _WrongScale(
            call,
            score_scale,
            "the cross-entropy gets probabilities instead of logits: it applies softmax or sigmoid again, and"
            " hardly falls",
            "pass the logits: remove the softmax or sigmoid before the loss",
        )
    if score_scale.scale == "classes":
        return _WrongScale(
            call,
            score_scale,
            "the cross-entropy gets the result of argmax, which is a class number without a gradient",
            "pass the logits, before argmax",
        )
    return None


def _wrong_input_of_nll_loss(call: CallEvent, score_scale: ScoreScale) -> _WrongScale | None:
    """What is wrong with the input of `nll_loss`."""
    if score_scale.scale == "log-probabilities":
        return None
    effect = {
        "logits": "it negates them and falls below zero without limit",
        "probabilities": "it stays between -1 and 0, and favours what is already likely",
        "classes": "these have no gradient",
    }[score_scale.scale]
    return _WrongScale(
        call,
        score_scale,
        f"nll_loss gets {score_scale.scale} instead of log-probabilities: {effect}",
        "pass F.log_softmax(logits, dim=-1), or use F.cross_entropy with the logits",
    )


def _wrong_input_or_target_of_divergence(
    call: CallEvent, loss: CallEvent, value: Value
) -> _WrongScale | None:
    """What is wrong with the input or the target of a Kullback-Leibler divergence."""
    score_scale = score_scale_of(value)
    if score_scale is not None and score_scale.scale != "log-probabilities":
        return _WrongScale(
            call,
            score_scale,
            f"kl_div gets {score_scale.scale} as its input instead of log-probabilities: its value is not a divergence"
            " and may be negative",
            "pass F.log_softmax(student_logits, dim=-1) as input, and F.softmax(teacher_logits, dim=-1) as target",
        )
    target = call.argument(1, "target")
    wanted = _target_scale_expected_by_divergence(loss)
    score_scale = None if target is None else score_scale_of(target)
    if score_scale is None or wanted is None or score_scale.scale == wanted:
        return None
    return _WrongScale(
        call,
        score_scale,
        f"kl_div gets {score_scale.scale} as its target instead of {wanted} (log_target={wanted != 'probabilities'})",
        "pass probabilities as the target, or log-probabilities with log_target=True",
    )


def _target_scale_expected_by_divergence(loss: CallEvent) -> str | None:
    """What a divergence takes as its target; None where it is not known."""
    is_function = loss.named("torch.nn.functional.*")
    log_target_argument = loss.argument(5 if is_function else 3, "log_target")
    plain = (
        False
        if log_target_argument is None and not loss.is_open
        else constant_of(log_target_argument)
    )
    if not isinstance(plain, bool):
        return None
    return "log-probabilities" if plain else "probabilities"
