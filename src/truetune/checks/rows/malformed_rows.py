"""Rows do not match their format.

## What it does
Counts rows with values that the reader could not use as they are: contents that are not text, missing turns, tool calls
that are not JSON, broken Unicode.

## Why it is bad
Trainers convert such values to text in their own ways ("None", "{'a': 1}"), skip them, or fail in the middle of a run.

## Example
```yaml
data:
  - {messages: [{role: user, content: 5}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "5"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Correct the rows at their source. `truetune show` prints what truetune read instead.

## References
- axolotl-ai-cloud/axolotl#325, NVIDIA-NeMo/Automodel#3143
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_of_problem
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Origin
from truetune.encoding.batch import Batch


class MalformedRows(DataRule):
    code = "ROW013"
    fault = Fault.ROW_FORMAT_NOT_RECOGNISED
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.odd = 0
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the malformed rows of a batch."""
        self.rows += len(batch.rows)
        for row in batch.rows:
            # Unknown roles are turn-roles-unknown-to-template's: the row is right, the template does not know
            # the role.
            problems = [problem for problem in row.problems if problem.kind != "unknown-role"]
            if problems:
                self.odd += 1
                self.kinds.update(sorted({problem.kind for problem in problems}))
                if len(self.cases) < MAX_CASES:
                    self.cases.append(case_of_problem(batch, row, problems[0]))

    def broken_line(self, origin: Origin, reason: str) -> None:
        """Count a line that holds no row as malformed."""
        self.rows += 1
        self.odd += 1
        self.kinds["no row"] += 1
        if len(self.cases) < MAX_CASES:
            self.cases.append(Case(reason.removeprefix(f"{origin.file}:{origin.line}: "), origin))

    def measurement_if_clean(self) -> Measurement:
        """How many rows are malformed."""
        return make_count_measurement("malformed rows", self.odd, self.rows)

    def findings(self) -> Iterator[Finding]:
        if self.odd:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
            yield self.finding(
                f"{self.odd:,} of {self.rows:,} rows are malformed: {kinds}. Trainers skip them, turn the values"
                " into text, or fail",
                "correct these rows where they are written, or drop them",
                cases=self.cases,
                count=self.odd,
                total=self.rows,
            )
