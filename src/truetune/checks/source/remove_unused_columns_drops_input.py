"""The Trainer removes a column that the collator or the loss reads.

## What it does
Compares the keys that a `Trainer`'s collator or `compute_loss` reads with the parameters of models, if
`remove_unused_columns` is on (the default). `compute_loss` is judged beside a collator of transformers, or none: a
collator of the script may make what the loss reads.

## Why it is bad
The Trainer keeps only columns that are parameters of the model's `forward`. A `row.get("weight", 1.0)` then always
gives 1.0, without an error.

## Example
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight", None)
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss if weight is None else (outputs.loss * weight).mean()
        return (loss, outputs) if return_outputs else loss


model = AutoModelForCausalLM.from_pretrained("some/model")
WeightedTrainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
```

## Use instead
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight", None)
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
        loss = outputs.loss if weight is None else (outputs.loss * weight).mean()
        return (loss, outputs) if return_outputs else loss


model = AutoModelForCausalLM.from_pretrained("some/model")
WeightedTrainer(model=model, args=TrainingArguments("out", remove_unused_columns=False), train_dataset=rows).train()
```

## Fix safety
Unsafe: all other columns of the rows then reach the collator as well, and it must handle them.

## References
- huggingface/transformers#25054, huggingface/transformers#22119, huggingface/trl#1186, huggingface/trl#2233
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.columns_read_by_collator_or_loss import (
    FORWARD_METHODS,
    NodeByKey,
    columns_read_by_collator,
    columns_read_by_loss,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module

TEXT_MODELS = tuple(
    f"transformers.AutoModelFor{task}.from_*"
    for task in (
        "CausalLM",
        "SequenceClassification",
        "TokenClassification",
        "MaskedLM",
        "Seq2SeqLM",
    )
)
"""Classes of which it is known what their forward takes"""


CHOOSES_COLUMNS = (
    "_signature_columns",
    "_set_signature_columns_if_needed",
    "_remove_unused_columns",
    "_get_collator_with_removed_columns",
)
"""What a script sets or overrides to choose itself which columns the Trainer keeps"""
READS_ARGUMENTS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")


class RemoveUnusedColumnsDropsInput(SourceRule):
    code = "SRC012"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = places_of_calls("Trainers that are made", *READS_ARGUMENTS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions(*CHOOSES_COLUMNS):
            return
        for call in module.calls(*READS_ARGUMENTS):
            settings = module.flow.producing_call(call.argument(1, "args"))
            model = module.flow.producing_call(call.argument(0, "model"))
            if settings is None or model is None or not model.named(*TEXT_MODELS):
                continue
            # label_names are kept whatever forward takes.
            kept = _columns_kept_by_label_names(module, settings)
            if kept is None:
                continue
            reader, read = _reader_and_columns(module, call)
            lost = {
                key: node
                for key, node in read.items()
                if key not in FORWARD_METHODS and key not in kept
            }
            if lost:
                yield self._finding_on_columns(reader, lost, settings)

    def _finding_on_columns(
        self, reader: str, lost: Mapping[str, ast.AST], settings: Call
    ) -> Finding:
        """The finding on columns that `reader` reads and the Trainer removes."""
        module = self.subject
        return self.finding(
            f"{reader} reads {', '.join(sorted(lost))}, which the Trainer removes before, since it is not a parameter"
            " of the model's forward",
            "set remove_unused_columns=False in the training arguments",
            evidence=[
                "remove_unused_columns is True by default: only parameters of forward are kept"
            ],
            cases=[
                *(case_of_node(module, node) for node in list(lost.values())[:2]),
                case_of_node(module, settings.node),
            ],
            fix=fix_of_changes(
                module,
                set_keyword(module, settings, "remove_unused_columns", "False"),
                safe=False,
            ),
        )


def _reader_and_columns(module: Module, trainer: Call) -> tuple[str, NodeByKey]:
    """What reads the columns of the rows, in words, and the columns that it reads."""
    collator = trainer.argument(2, "data_collator")
    if collator is None or _is_collator_of_transformers(module, collator):
        return "compute_loss", columns_read_by_loss(module, trainer)
    return "the collator", columns_read_by_collator(module, collator)


def _is_collator_of_transformers(module: Module, collator: ast.expr) -> bool:
    """Is a collator one of transformers, which adds no column of a project to the batch?

    One of the project may make what the loss reads.
    """
    made = module.flow.producing_call(collator)
    if made is not None:
        return made.named("transformers.DataCollator*")
    return module.flow.name(collator) == "transformers.default_data_collator"


def _columns_kept_by_label_names(module: Module, settings: Call) -> list[object] | None:
    """The columns that `label_names` keeps; None where the trainer removes none, or that is not plain."""
    value = module.flow.value
    flag = settings.keywords.get("remove_unused_columns")
    removes = flag is None or value(flag) is True
    names = settings.keywords.get("label_names")
    kept = [] if names is None else value(names)
    if settings.open or not removes or not isinstance(kept, list):
        return None
    return kept
