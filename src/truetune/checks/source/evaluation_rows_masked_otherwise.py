"""Training and evaluation compute the loss over different tokens: only one of them masks the prompt.

## What it does
Follows `train_dataset` and `eval_dataset` of a trainer, and the training and validation loaders of a hand-written loop,
back to the functions that make their labels (`rows.map(encode_train)`, `rows.map(encode_eval)`). It fires if these are
two functions and only one of them writes -100 into the labels.

## Why it is bad
One loss is a mean over the answers, the other a mean over prompts and answers. They differ by a factor from the first
step on, whatever the model does: overfitting can't be seen in them, and the best checkpoint is the one that predicts
prompts best.

## Example
```python
from transformers import Trainer


def encode_train(row):
    prompt, answer = tok(row["prompt"])["input_ids"], tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def encode_eval(row):
    ids = tok(row["prompt"] + row["answer"])["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}


trainer = Trainer(model, train_dataset=train.map(encode_train), eval_dataset=held.map(encode_eval))
```

## Use instead
```python
from transformers import Trainer


def encode_train(row):
    prompt, answer = tok(row["prompt"])["input_ids"], tok(row["answer"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


trainer = Trainer(model, train_dataset=train.map(encode_train), eval_dataset=held.map(encode_train))
```

## Fix safety
The evaluation loss changes and can't be compared with that of earlier runs. Training is unchanged.

## References
- huggingface/trl documentation, "SFT Trainer" (`completion_only_loss` holds for both data sets)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces, places_of_calls_with_keywords
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.held_out_loaders_sharing_training_rows import (
    loaders_of_held_out_rows,
    training_and_held_out_rows,
)
from truetune.checks.source.evidence.label_masking_and_padding import holds_ignored_label
from truetune.checks.source.evidence.metric_functions_and_token_shifts import with_called_functions
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Function,
    Item,
    Result,
    Value,
)

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
DATA_SETS = ("train_dataset", "eval_dataset")
COLLATORS_THAT_LABEL = ("DataCollatorForCompletionOnlyLM", "DataCollatorForLanguageModeling")
"""They write the labels of both data sets, or mask them alike"""
COPIES_IDS = re.compile(r"labels['\"]?\]?\s*[:=][^\n]*\b(?:input_)?ids\b")
"""Labels that are the ids of the row"""
MAY_MASK = re.compile(r"ignore|mask(?!['\"]\]?\s*:)|target", re.I)
"""Signs of a mask that is not followed, and of targets that are no part of the row's ids"""
MAX_STEPS = 12
"""Methods that a data set is followed through; scripts chain about six"""


class LabelFunction(NamedTuple):
    """A function that makes labels."""

    function: ast.FunctionDef
    masks: bool
    """Does it, or what it calls, write -100?"""


def _trainers_and_held_out_loaders(module: Module) -> Iterator[object]:
    """Trainers with both data sets, and loaders of held-out rows."""
    yield from places_of_calls_with_keywords("", DATA_SETS, *TRAINERS).find(module)
    yield from loaders_of_held_out_rows(module)


class EvaluationRowsMaskedOtherwise(SourceRule):
    code = "SRC370"
    fault = Fault.EVALUATION_LOSS_NOT_COMPARABLE
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces(
        "trainers and loaders with rows to evaluate on", _trainers_and_held_out_loaders
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on evaluation rows that are labelled in another way than those of the training."""
        module = self.subject
        if module.mentions(*COLLATORS_THAT_LABEL):
            return
        judged_nodes: set[ast.AST] = set()
        for train, held in _trained_and_evaluated_rows(module):
            one, other = _label_function_of(module, train), _label_function_of(module, held)
            if one is None or other is None or one.masks is other.masks:
                continue
            if other.function in judged_nodes:
                continue
            judged_nodes.add(other.function)
            yield self.finding(
                f"`{one.function.name}` encodes the training rows and `{other.function.name}` the evaluation rows,"
                " but only"
                f" {(one if one.masks else other).function.name} writes -100 into labels: the two losses are means over"
                " different tokens",
                f"encode both with {one.function.name}",
                cases=[case_of_node(module, other.function), case_of_node(module, one.function)],
            )


def _trained_and_evaluated_rows(module: Module) -> Iterator[tuple[Value, Value]]:
    """Rows that are trained, and rows that are evaluated on beside them."""
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            train, held = (trainer.keywords.get(name) for name in DATA_SETS)
            if trainer.home.path == module.path and train is not None and held is not None:
                yield train, held
    yield from training_and_held_out_rows(module)


def _label_function_of(module: Module, rows: Value) -> LabelFunction | None:
    """The function that makes the labels of a data set; None where none is seen, or several may be meant."""
    for _ in range(MAX_STEPS):
        if isinstance(rows, Item):
            rows = rows.base
            continue
        if isinstance(rows, Choice) or not isinstance(rows, Result):
            return None
        call = rows.call
        function_argument = call.argument(0, "function")
        if call.method == "map" and isinstance(function_argument, Function):
            label_function = _as_label_function(module, function_argument)
            if label_function is not None:
                return label_function
        if call.receiver is None:
            return None
        rows = call.receiver
    return None


def _as_label_function(module: Module, function: Function) -> LabelFunction | None:
    """A function of the project that writes labels; None for others, and where it is not clear what it masks."""
    node = function.definition
    if not isinstance(node, ast.FunctionDef):
        return None
    parts = with_called_functions(module, [node])
    text = "\n".join(ast.unparse(part) for part in parts)
    if any(holds_ignored_label(module.home(part), part) for part in parts):
        return LabelFunction(node, masks=True) if "labels" in text else None
    copies = COPIES_IDS.search(text) is not None and MAY_MASK.search(text) is None
    return LabelFunction(node, masks=False) if copies else None
