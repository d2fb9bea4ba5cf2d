"""Metrics are computed from the logits of the whole evaluation set, which are all kept in memory.

## What it does
Looks for a trainer of a causal model (`SFTTrainer` trains no other) with `compute_metrics` and neither
`preprocess_logits_for_metrics` nor `batch_eval_metrics`, if it has rows to evaluate on or is asked to evaluate. It is
info if `eval_accumulation_steps` moves the logits from the GPU to main memory, which they then fill instead. It also
reports a trainer of any model that returns hidden states or attentions (`output_hidden_states=True`), which are kept as
well.

## Why it is bad
The logits of all rows are kept until the end: rows x length x vocabulary x 4 bytes. With a vocabulary of 150,000, 500
rows of 1,024 tokens take 300 GB: training fits, and the first evaluation runs out of memory.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer

rows = load_dataset("some/rows", split="test")
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, eval_dataset=rows, compute_metrics=lambda pred: {"n": len(pred.predictions)})
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer

rows = load_dataset("some/rows", split="test")
model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(
    model=model,
    eval_dataset=rows,
    compute_metrics=lambda pred: {"n": len(pred.predictions)},
    preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
)
```

## Fix safety
`compute_metrics` then gets the class ids that the function returns, and must not take the argmax again.

## References
- huggingface/transformers#12878, huggingface/transformers#15466, huggingface/transformers#27458, huggingface/trl#893
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.causal_predictions_compared_with_labels import (
    causal_trainers_with_metrics,
)
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    argument_or_attribute_of_trainer,
    functions_seeing_logits,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TO_HOST = "eval_accumulation_steps"
MOVED_TO_HOST = "to main memory"
"""Part of the message where logits leave the GPU"""
OTHER_LIMITS = (
    "batch_eval_metrics",
    "prediction_loss_only",
    "def prediction_step",
    "def evaluation_loop",
)
"""What keeps less, or may: a method of the trainer's own class gives back what it likes"""
WHOLE_ROWS = ("softmax", "cross_entropy", "nll_loss", "logsumexp")
"""Functions that need all logits of a token, not the largest alone"""
LARGE_OUTPUTS = ("output_hidden_states", "output_attentions")


def _trainers_with_large_outputs(module: Module) -> Iterator[Call]:
    """Trainers of causal models, and those of others whose model returns more than logits."""
    causal = list(causal_trainers_with_metrics(module))
    yield from causal
    if next(_settings_for_extra_outputs(module), None) is not None:
        known = {call.node for call in causal}
        yield from (
            call for call in module.calls("transformers.*Trainer") if call.node not in known
        )


def _settings_for_extra_outputs(module: Module) -> Iterator[ast.AST]:
    """What makes the model return hidden states or attentions at each pass: an argument, or a field of its config."""
    for call in module.calls("*.from_pretrained"):
        if any(_is_certainly_true(call.keywords.get(name)) for name in LARGE_OUTPUTS):
            yield call.node
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        is_field = isinstance(target, ast.Attribute) and target.attr in LARGE_OUTPUTS
        if is_field and "config" in ast.unparse(target) and _is_certainly_true(node.value):
            yield node


def _is_certainly_true(node: ast.AST | None) -> bool:
    """Is a value certainly true?"""
    return isinstance(node, ast.Constant) and node.value is True


def _nothing_reduces_logits(module: Module, trainer: Call) -> bool:
    """Is a trainer certainly given nothing that makes less of the logits of a batch?"""
    name = "preprocess_logits_for_metrics"
    return trainer.lacks(name) and argument_or_attribute_of_trainer(module, trainer, name) is None


def _remedy(module: Module, trainer: Call) -> str:
    """The remedy: what keeps less than the logits, and all that the metrics need of them."""
    functions = functions_seeing_logits(module, trainer) or ()
    calls = (n for one in functions for n in ast.walk(one) if isinstance(n, ast.Call))
    if any(ast.unparse(call.func).endswith(WHOLE_ROWS) for call in calls):
        return (
            "set preprocess_logits_for_metrics to a function that returns only what the metrics need of each token"
            " (its log-probability) instead of all its logits"
        )
    return (
        "set preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) (and remove argmax from"
        " compute_metrics)"
    )


class EvaluationKeepsAllLogits(SourceRule):
    code = "SRC061"
    fault = Fault.EVALUATION_FILLS_GPU_MEMORY
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces(
        "trainers of causal models, or of models that return hidden states",
        _trainers_with_large_outputs,
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on trainers that compute metrics from the logits of the whole evaluation set."""
        module = self.subject
        if module.mentions(*OTHER_LIMITS):
            return
        evaluates = any(module.methods("evaluate", "predict"))
        outputs = next(_settings_for_extra_outputs(module), None)
        for call in _trainers_with_large_outputs(module):
            if not evaluates and call.lacks("eval_dataset"):
                continue
            expression = argument_or_attribute_of_trainer(module, call, "compute_metrics")
            if expression is None or not _nothing_reduces_logits(module, call):
                continue
            if module.mentions(TO_HOST):
                if any(one.node is call.node for one in causal_trainers_with_metrics(module)):
                    yield self._finding_on_moved_logits(call, expression)
            elif outputs is not None and not module.mentions("ignore_keys"):
                yield self._finding_on_hidden_states(expression, outputs)
            else:
                yield self._finding_on_logits(call, expression)

    def _finding_on_hidden_states(self, expression: ast.expr, outputs: ast.AST) -> Finding:
        """The finding on hidden states or attentions that the evaluation keeps beside the logits."""
        module = self.subject
        return self.finding(
            "the model returns hidden states or attentions of all layers, and the evaluation keeps them for"
            " every row until its end, in addition to the logits",
            "remove output_hidden_states and output_attentions, or add"
            " preprocess_logits_for_metrics=lambda logits, labels: logits[0] (only the logits), or set"
            " eval_accumulation_steps=1",
            evidence=[
                "each layer adds rows x length x width, attentions rows x heads x length x length"
            ],
            cases=[case_of_node(module, outputs), case_of_node(module, expression)],
        )

    def _finding_on_logits(self, trainer: Call, expression: ast.expr) -> Finding:
        """The finding on logits that stay on the GPU until the end of the evaluation."""
        module = self.subject
        return self.finding(
            "compute_metrics gets the logits of the whole evaluation set, which all stay in GPU memory until its end",
            _remedy(module, trainer),
            evidence=["they take rows x length x vocabulary x 4 bytes"],
            cases=[case_of_node(module, expression)],
        )

    def _finding_on_moved_logits(self, trainer: Call, expression: ast.expr) -> Finding:
        """The finding on logits that eval_accumulation_steps moves away from the GPU, and that are
        kept all the same.
        """
        module = self.subject
        return self.finding(
            f"{TO_HOST} moves the evaluation's logits {MOVED_TO_HOST}, where those of all rows are kept for"
            " compute_metrics",
            _remedy(module, trainer),
            severity="info",
            evidence=["they take rows x length x vocabulary x 4 bytes: fine for few or short rows"],
            cases=[case_of_node(module, expression)],
        )
