"""Metrics compare a causal model's predictions with labels of the same position.

## What it does
Looks at the function that a trainer of a causal model gets as `compute_metrics`. It fires if tokens picked by `argmax`,
in it or in `preprocess_logits_for_metrics`, are compared with the label of the same position, without a shift by one.
Predictions and labels are recognised by what the trainer passes, not by their names. It does not judge if one of the
functions is not in the files, or no comparison is found.

In any other function, such as a `validation_step` or an evaluation loop, it fires if tokens are picked by `argmax` from
the logits of a model that gets the labels, and are compared with those labels without a shift. Such a model shifts the
labels for its own loss, so they are at the positions of their ids. Programs with a hand-written cross-entropy, which
may shift labels elsewhere, are judged only if a symbolic run traces both sides back to the same ids.

## Why it is bad
The logits at a position predict the next token. Without the shift, a model that reproduces a text perfectly scores
about 0.17 instead of 1.0.

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
The shift changes only the score. Scores of earlier runs can't be compared with it.

## References
- huggingface/transformers#26474, huggingface/trl#862, unslothai/unsloth#2257, hiyouga/LLaMA-Factory#2040
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.causal_predictions_compared_with_labels import (
    COMPARISON_NOT_SEEN,
    METRICS_NOT_SEEN,
    TOKEN_COMPARISONS,
    causal_trainers_with_metrics,
    token_picking_scopes,
)
from truetune.checks.source.evidence.label_shifts_in_token_accuracies import (
    token_accuracies_with_known_label_shift,
)
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    first_label_comparison_of_picked_tokens,
    functions_seeing_logits,
    may_shift_tokens,
    unshifted_label_comparisons,
    with_called_functions,
)
from truetune.source.parsed_source_file import Module


class MetricsUnshifted(SourceRule):
    code = "SRC047"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces(
        "comparisons of a causal model's tokens with labels",
        lambda module: (
            *TOKEN_COMPARISONS.find(module),
            *token_accuracies_with_known_label_shift(module),
        ),
    )

    def unmet(self) -> Unmet | None:
        """Also unmet where the metrics, or their comparison with labels, are not seen."""
        missing = super().unmet()
        if missing is not None:
            return missing
        module = self.subject
        for call in causal_trainers_with_metrics(module):
            functions = functions_seeing_logits(module, call)
            if functions is None:
                return METRICS_NOT_SEEN
            if (
                not may_shift_tokens(functions)
                and first_label_comparison_of_picked_tokens(module, functions) is None
            ):
                return COMPARISON_NOT_SEEN
        for step in token_picking_scopes(module):
            if (
                not may_shift_tokens(with_called_functions(module, [step]))
                and _argmax_label_comparison_of_step(module, step) is None
            ):
                return COMPARISON_NOT_SEEN
        return None

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        followed = list(token_accuracies_with_known_label_shift(module))
        for one in followed:
            if one.ahead == 0:
                yield self._finding_on_comparison_in_step(one.node)
        # What the run follows is judged by it, and not once more by its text.
        lines = {module.place(one.node)[0] for one in followed}
        for finding in self._findings_in_text():
            if not any(case.line in lines for case in finding.cases):
                yield finding

    def _finding_on_comparison_in_step(self, node: ast.AST) -> Finding:
        """The finding on a comparison in a step or a loop."""
        return self.finding(
            "predictions are compared with the labels of the same position, but logits predict the next token: the"
            " score is far too low",
            "compare predictions[:, :-1] with labels[:, 1:]",
            cases=[case_of_node(self.subject, node)],
        )

    def _findings_in_text(self) -> Iterator[Finding]:
        """Findings on the comparisons that the text of the file shows."""
        # All trainers of the file: a script may compare two of them with one function.
        module = self.subject
        for call in causal_trainers_with_metrics(module):
            functions = functions_seeing_logits(module, call)
            if functions is None or may_shift_tokens(functions):
                continue
            compared = first_label_comparison_of_picked_tokens(module, functions)
            if compared is not None:
                yield self.finding(
                    "compute_metrics compares predictions with the labels of the same position, but logits predict"
                    " the next token: the score is far too low",
                    "compare predictions[:, :-1] with labels[:, 1:]",
                    cases=[case_of_node(module, compared)],
                )
        for step in token_picking_scopes(module):
            compared = _argmax_label_comparison_of_step(module, step)
            if compared is not None and not may_shift_tokens(with_called_functions(module, [step])):
                yield self._finding_on_comparison_in_step(compared)


def _argmax_label_comparison_of_step(module: Module, step: ast.AST) -> ast.AST | None:
    """Where a step compares the tokens that it picks with the labels; None where that is not seen."""
    return next(unshifted_label_comparisons(module, step), None)
