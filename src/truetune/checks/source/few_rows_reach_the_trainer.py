"""A row limit from a test run is left on in a training whose model is saved.

## What it does
Follows the data of a trainer, or of a loop that calls `backward`, back to where it is loaded. It looks for a plain
number that leaves at most 200 rows (500 of a stream): `select(range(100))`, `take(100)`, `rows[:100]`,
`split="train[:100]"`; and for Lightning's `limit_train_batches` with at most 200 steps in total. Not reported: limits
under an option or a condition, evaluation sets, and runs that save no model. In a notebook it is only info, since it
may be a tutorial.

## Why it is bad
The limit was written to try out the script. The run ends early and without errors, its loss falls, and the model has
memorised a few rows. Nothing in the log says how many there were.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train").select(range(100))
trainer = SFTTrainer(model="model", train_dataset=rows)
trainer.train()
trainer.save_model("out")
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
trainer = SFTTrainer(model="model", train_dataset=rows)
trainer.train()
trainer.save_model("out")
```

## Fix safety
There is no automatic fix: the run gets longer. If you mean to train on few rows, add `# truetune:
ignore[few-rows-reach-the-trainer]` to the line.

## References
- Hugging Face Datasets documentation, "Slice splits"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.small_row_limits_of_trainings import (
    LIGHTNING,
    TRAINERS,
    small_row_limits_of_saved_trainings,
)


class FewRowsReachTheTrainer(SourceRule):
    code = "SRC149"
    fault = Fault.SWITCH_FOR_TESTING_LEFT_ON
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = places_of_calls("trainers that are made", *TRAINERS, *LIGHTNING)

    def findings(self) -> Iterator[Finding]:
        for limit in small_row_limits_of_saved_trainings(self.subject):
            yield self.finding(
                f"{limit.what} reach the training, and its model is saved: a limit from a test run seems to be left on",
                f"remove {limit.cut}, or apply it only under an option (if args.debug:)",
                cases=[case_of_node(self.subject, limit.node)],
                # A tutorial is often quick on purpose.
                severity="info" if self.subject.path.endswith(".ipynb") else None,
            )
