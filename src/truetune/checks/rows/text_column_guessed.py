"""No column is called `text`, so the only one that contains text is used.

## What it does
Reports which column is read as plain text if the rows have no column that truetune knows, and only one contains text
besides ids, names, dates and the like. It is always an info.

## Why it is bad
If that column is the text, nothing is wrong. If it is a question whose answer is in a list or a number, the model would
learn to write questions. A trainer that looks for `text` also needs the column's name.

## Example
```yaml
data: {rows: 3, id: "{i}", body: "{words}"}
```

## Use instead
```yaml
data: {rows: 3, id: "{i}", text: "{words}"}
```

## Fix safety
`--map text=COLUMN` sets the column for truetune, `dataset_text_field` for TRL.

## References
- huggingface/open-r1#454, simplescaling/s1#39
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_PLAIN_ROWS
from truetune.checks.rule import DataRule, Setup
from truetune.data.column_name_aliases import find_only_text_column
from truetune.encoding.batch import Batch


class TextColumnGuessed(DataRule):
    code = "ROW024"
    fault = Fault.ROW_FORMAT_NOT_RECOGNISED
    symptoms = ("nothing-is-learned",)
    severity = "info"
    needs_tokenizer = False
    judges_columns = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.plain = 0
        self.columns: Counter[str] = Counter()
        self.first: dict[str, Case] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of plain text in a batch whose column is guessed."""
        for row in batch.rows:
            if row.text is None or not row.raw:
                continue
            self.plain += 1
            if "text" not in row.raw and "text" not in self.spec.map:
                column = find_only_text_column(row.raw) or "a column"
                self.columns[column] += 1
                self.first.setdefault(
                    column, case_in_row(batch, row, f"{column!r} is read as the text")
                )

    def unmet(self) -> Unmet | None:
        """Unmet without rows of plain text."""
        return None if self.plain else NO_PLAIN_ROWS

    def measurement_if_clean(self) -> Measurement:
        """That no row of plain text has a guessed column."""
        return make_count_measurement("rows of plain text whose column is guessed", 0, self.plain)

    def findings(self) -> Iterator[Finding]:
        for column, count in self.columns.most_common():
            yield self.finding(
                f"no column is called 'text', so {column!r} is read as the text in {count:,} rows",
                "if it is the text, change nothing (in TRL, set dataset_text_field to its name); otherwise choose"
                " another column: --map text=COLUMN, or --map prompt=COLUMN --map completion=COLUMN",
                cases=[self.first[column]],
                count=count,
                total=self.plain,
            )
