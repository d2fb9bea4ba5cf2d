"""A row limit that a script has for test runs is switched on by the project's own job.

## What it does
Traces the data of a training whose model is saved back to a cut that leaves at most 200 rows (`select(range(64))`,
`rows[:64]`, `head(64)`) under the condition of an environment variable or an option, and reads what the job and shell
files around the script set: `export SMOKE_TEST=1`, `DEBUG=1 python train.py`, `python train.py --debug`, files that a
job sources. It fires if the value switches the cut on in every job that starts the script. Jobs that are called a test
or a trial are not reported.

## Why it is bad
The variable was set for a test run, and stayed in a file that nobody reads again. The real run takes as long as
planned, since it counts steps, but trains on the same few rows hundreds of times: its loss is close to 0, and on
anything else the model is unchanged or worse.

## Example
```python
# job.sh: SMOKE_TEST=1 python train.py
import os

from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
if os.environ.get("SMOKE_TEST"):
    rows = rows.select(range(64))
trainer = SFTTrainer(model="model", train_dataset=rows)
trainer.train()
trainer.save_model("out")
```

## Use instead
```python
# job.sh: python train.py
import os

from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
if os.environ.get("SMOKE_TEST"):
    rows = rows.select(range(64))
trainer = SFTTrainer(model="model", train_dataset=rows)
trainer.train()
trainer.save_model("out")
```

## Fix safety
There is no automatic fix: the run trains on all rows, and its epochs take longer.

## References
- Hugging Face Datasets documentation, "Slice splits"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.small_row_limits_of_trainings import TRAINERS
from truetune.checks.source.evidence.trial_row_limits_switched_on import row_limits_switched_on


class TrialLimitSwitchedOn(SourceRule):
    code = "SRC319"
    fault = Fault.SWITCH_FOR_TESTING_LEFT_ON
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = places_of_calls("trainers that are made", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        for limit in row_limits_switched_on(self.subject):
            given = limit.setting
            beside = Path(self.subject.path).with_name(Path(given.file).name)
            place = str(beside) if beside.is_file() else given.file
            file = Path(given.file).name
            yield self.finding(
                f"the run trains on only {limit.rows:,} rows: {given.name}={given.value} in {file} switches on a limit"
                " for test runs",
                f"remove {given.name} from {file} (line {given.line}), and train again from the base model",
                cases=[
                    case_of_node(self.subject, limit.node),
                    Case(f"{given.name}={given.value}", file=place, line=given.line),
                ],
            )
