"""Two lists number the same labels in different orders.

## What it does
Collects the lists and dictionaries by which a file that generates, or runs a classifier, turns numbers into label names
(`LABELS[i]`, `{0: "negative", 1: "positive"}`, `label2id`), and those of the other Python files in its folder. It fires
if two have the same names in another order. Lists that are only sampled from or joined into a prompt are not checked.

## Why it is bad
Class 0 is `negative` in the training rows and `positive` in the references: the model is right, and its accuracy is one
minus the true value. With more classes, those that changed places are always wrong.

## Example
```python
from transformers import pipeline

pipe = pipeline("text-generation", model="out/tuned")
id2label = {0: "negative", 1: "positive"}
LABELS = ["positive", "negative"]
rows = [{"prompt": text, "answer": id2label[number]} for text, number in train]
answers = pipe([text for text, _ in test], batch_size=16)
right = [one["generated_text"] == LABELS[row[1]] for one, row in zip(answers, test)]
```

## Use instead
```python
from transformers import pipeline

pipe = pipeline("text-generation", model="out/tuned")
id2label = {0: "negative", 1: "positive"}
LABELS = ["negative", "positive"]
rows = [{"prompt": text, "answer": id2label[number]} for text, number in train]
answers = pipe([text for text, _ in test], batch_size=16)
right = [one["generated_text"] == LABELS[row[1]] for one, row in zip(answers, test)]
```

## Fix safety
There is no automatic fix: the data says which order is right. Keep one list, and import it in both scripts.

## References
- huggingface/transformers#10086 (`label2id` of another order than the data's)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.label_names_by_number import (
    LabelOrder,
    label_orders,
    label_orders_of_same_names_beside,
)
from truetune.checks.source.evidence.text_generation_calls import model_questions
from truetune.source.parsed_source_file import Module

CLASSIFIERS = (
    "transformers.*ForSequenceClassification.from_pretrained",
    "transformers.*ForTokenClassification.from_pretrained",
)


def _numbered_label_names_of_generation(module: Module) -> Iterator[LabelOrder]:
    """The label names that a file numbers, where it generates or asks a classifier."""
    generates = any(model_questions(module)) or any(generate_calls(module))
    if generates or any(module.calls(*CLASSIFIERS)):
        yield from label_orders(module)


class LabelNamesInAnotherOrder(SourceRule):
    code = "SRC098"
    fault = Fault.LABEL_NAMES_MIXED_UP
    severity = "warning"
    looks_at = CodePlaces(
        "lists of labels in files that generate or classify", _numbered_label_names_of_generation
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        own = list(_numbered_label_names_of_generation(module))
        for place, order in enumerate(own):
            others = [
                *own[:place],
                *label_orders_of_same_names_beside(module, frozenset(order.names)),
            ]
            other = next((one for one in others if _is_other_order(order, one)), None)
            if other is not None:
                first = next(
                    (a, b) for a, b in zip(order.names, other.names, strict=True) if a != b
                )
                number = order.names.index(first[0])
                yield self.finding(
                    f"label {number} is {first[0]!r} here and {first[1]!r} in"
                    f" {_other_place_in_words(module, other)}: the names are in another order, so correct answers"
                    " count as wrong",
                    "keep one list of the names, in the order of the data, and use it in both places",
                    cases=[
                        case_of_node(module, order.node),
                        case_of_node(other.module, other.node),
                    ],
                )


def _is_other_order(order: LabelOrder, other: LabelOrder) -> bool:
    """Have two lists the same names in different orders?"""
    return order.names != other.names and set(order.names) == set(other.names)


def _other_place_in_words(module: Module, other: LabelOrder) -> str:
    """The place of the other list, for a message."""
    line = other.module.place(other.node)[0]
    same = other.module is module
    return f"line {line}" if same else f"{other.module.path.rpartition('/')[2]}, line {line}"
