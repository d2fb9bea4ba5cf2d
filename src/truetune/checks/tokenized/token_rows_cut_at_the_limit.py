"""Tokenized rows are cut off at one length.

## What it does
Counts rows of the greatest length, or of the `max_length` that is set, that end without a stop token. It is an error
from half of the rows, and a warning below.

## Why it is bad
What came after the limit is lost, first of all the stop token: the model learns answers without an end. In a cache the
text is gone, so it can't be recovered from there.

## Example
```yaml
make: [healthy, {ids: cut}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize the rows again with a higher limit (`truetune encode --max-length N`), which needs
more memory. If only a few are cut, drop these (`--overflow drop`).

## References
- huggingface/trl#2400, huggingface/trl#6003, unslothai/unsloth#2904
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import (
    cases_of_row_places,
    find_rows_without_stop_token,
)

# As for `find_rows_without_stop_token`: one row is always the longest.
MIN_ROWS = 2
"""Rows of one length without an end that are no accident"""


class TokenRowsCutAtTheLimit(TokenizedRule):
    code = "IDS014"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        cut = find_rows_without_stop_token(summary)
        if self.subject.is_plain_text or cut.at_limit < MIN_ROWS:
            return
        yield self.finding(
            f"{cut.at_limit:,} of {summary.rows:,} rows are cut off at {cut.limit:,} tokens, without a stop token:"
            " the model learns answers without an end",
            _remedy_for_cut_rows(cut.limit, is_most=2 * cut.at_limit >= summary.rows),
            severity="error" if 2 * cut.at_limit >= summary.rows else "warning",
            evidence=self._evidence_of_saved_limit(cut.limit),
            cases=[
                case
                # The text of an open row begins with its length: those of other lengths were never
                # cut.
                for case in cases_of_row_places(summary.open_rows)
                if case.text.startswith(f"{cut.limit:,} ")
            ],
            count=cut.at_limit,
            total=summary.rows,
        )

    def _evidence_of_saved_limit(self, limit: int) -> Iterator[str]:
        """That the rows were cut where the tokenizer's own limit is, and no run sets one."""
        saved = self.subject.probes.tokenizer.config.get("model_max_length")
        if saved == limit and self.subject.spec.max_length is None:
            yield (
                f"model_max_length in tokenizer_config.json is {limit:,}: truncation=True cuts there if the call"
                " gives no max_length"
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows that end without a stop token, and the length of the longest row."""
        summary = self.subject.summary
        limit = len(summary.lengths) - 1
        return make_count_measurement(
            "rows that end without a stop token",
            summary.open_rows.count,
            summary.rows,
            f"; longest {limit:,}",
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the rows are plain text, which may be cut anywhere."""
        if self.subject.is_plain_text:
            return Unmet(
                "it is about answers, and the rows are plain text, which may be cut anywhere"
            )
        return super().unmet()


def _remedy_for_cut_rows(limit: int, *, is_most: bool) -> str:
    """What to do about cut rows; where most are cut, dropping them would leave hardly any."""
    again = f"tokenize the rows again with a limit above {limit:,}: truetune encode --max-length N"
    return again if is_most else f"{again}; or drop the rows that do not fit: --overflow drop"
