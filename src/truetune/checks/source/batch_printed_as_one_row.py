"""A function that is written for one row is mapped with `batched=True`: whole columns are put into one text.

## What it does
Inspects functions of `map(..., batched=True)`, `set_transform` and `with_transform` in the checked files. It finds
places where a column is put unchanged into a text or a message: `f"Question: {batch['question']}"`,
`template.format(**batch)`, `"%s" % batch["question"]`, `{"role": "user", "content": batch["question"]}`. Columns that
are joined, indexed or looped over, and texts that are only printed or logged, are not reported.

## Why it is bad
With `batched=True` the function gets lists. The text becomes `Question: ['How ...', 'Where ...', ...]`. If it is
returned as a list of one text, a batch of 1,000 rows becomes one row. No error is raised and the loss falls. The model
learns brackets and many answers at once, and trains on a fraction of the rows.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

def to_text(row):
    return {"text": [f"Question: {row['question']}\\nAnswer: {row['answer']}"]}

rows = load_dataset("json", data_files="faq.jsonl", split="train")
rows = rows.map(to_text, batched=True, remove_columns=rows.column_names)
SFTTrainer("model", train_dataset=rows).train()
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

def to_text(batch):
    pairs = zip(batch["question"], batch["answer"])
    return {"text": [f"Question: {question}\\nAnswer: {answer}" for question, answer in pairs]}

rows = load_dataset("json", data_files="faq.jsonl", split="train")
rows = rows.map(to_text, batched=True, remove_columns=rows.column_names)
SFTTrainer("model", train_dataset=rows).train()
```

## Fix safety
There is no automatic fix: if you remove `batched=True`, the list around the returned text must go, too. The number of
rows, and of training steps, rises to what the file has.

## References
- Hugging Face Datasets documentation, "Batch mapping"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.whole_columns_printed_as_one_row import (
    ALWAYS_BATCHED,
    BatchedFunction,
    PrintedColumn,
    batched_functions,
    printed_columns,
)


class BatchPrintedAsOneRow(SourceRule):
    code = "SRC260"
    fault = Fault.ROWS_MIXED_UP_BY_CODE
    symptoms = ("garbage-output", "nothing-is-learned", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("functions that get whole batches of rows", batched_functions)

    def findings(self) -> Iterator[Finding]:
        """Findings on functions for one row that are mapped with `batched=True`, so that whole columns
        are printed into one text.
        """
        module = self.subject
        by_function: dict[object, list[PrintedColumn]] = {}
        for place in printed_columns(module):
            by_function.setdefault(place.mapped.function, []).append(place)
        for places in by_function.values():
            mapped = places[0].mapped
            columns = list(dict.fromkeys(place.column for place in places))
            yield self.finding(
                f"{mapped.name} is written for one row, but gets whole batches: it puts"
                f" {_printed_columns_in_words(columns)} into one {_target_in_words(places)}, and the model"
                " is trained on printed Python lists",
                _remedy(mapped),
                cases=[
                    case_of_node(module, mapped.call.node),
                    case_of_node(module, places[0].node),
                ],
            )


def _printed_columns_in_words(columns: list[str]) -> str:
    """The columns that are printed, two of them named."""
    if len(columns) == 1:
        return f"the list {columns[0]}"
    return f"the lists {columns[0]} and {columns[1]}"


def _target_in_words(places: list[PrintedColumn]) -> str:
    """What the column is put into."""
    return "message" if all(place.is_message for place in places) else "text"


def _remedy(mapped: BatchedFunction) -> str:
    """The remedy: how the function gets one row at a time."""
    row_by_row = "loop over the rows inside the function and return one text for each"
    if mapped.call.method in ALWAYS_BATCHED:
        return f"{row_by_row} ({mapped.call.method} always passes lists)"
    return f"remove batched=True and return the text itself, not a list of one; or {row_by_row}"
