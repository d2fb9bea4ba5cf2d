"""A cache of tokenized rows was made with another tokenizer, template or setting.

## What it does
Compares the hashes of tokenizer, template and settings in the manifest of `truetune encode` with the ones given. Rows
of any cache that are longer than the settings' `max_length` are a warning.

## Why it is bad
A cache is not rebuilt when its tokenizer or template changes: the run trains on the old version.

## Example
```yaml
settings: {max_length: 8}
make: [healthy]
```

## Use instead
```yaml
settings: {max_length: 4096}
make: [healthy]
```

## Fix safety
There is no automatic fix: delete the cache, or tokenize the rows again.

## References
- huggingface/datasets#3297
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule


class CacheMadeWithOtherSettings(TokenizedRule):
    code = "IDS005"
    fault = Fault.PREPARED_ROWS_OUT_OF_DATE
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        for one in self.subject.differences:
            yield self.finding(
                f"the cache was made with another {one.what}: {one.made_with}, now {one.now}",
                "delete the cache and tokenize the rows again, or the run trains on the old version",
            )
        limit, longer = self.subject.spec.max_length, self._count_rows_beyond_limit()
        if longer:
            summary = self.subject.summary
            yield self.finding(
                f"{longer:,} of {summary.rows:,} rows are longer than max_length {limit:,}: they were made with"
                " another limit",
                "tokenize the rows again with this limit; otherwise the trainer cuts them, and their stop tokens"
                " are lost",
                severity="warning",
                evidence=[f"the longest row has {len(summary.lengths) - 1:,} tokens"],
                count=longer,
                total=summary.rows,
            )

    def _count_rows_beyond_limit(self) -> int:
        """Rows that are longer than the run's limit."""
        limit = self.subject.spec.max_length
        # lengths[n] is the number of rows of n tokens.
        return int(self.subject.summary.lengths[limit + 1 :].sum()) if limit else 0

    def measurement_if_clean(self) -> Measurement | str:
        """The number of rows longer than max_length, none; without max_length, that the cache's
        settings are those that its maker wrote down.
        """
        if self.subject.spec.max_length:
            return make_count_measurement(
                "rows that are longer than max_length", 0, self.subject.summary.rows
            )
        return "tokenizer, template and settings are those in the manifest of the cache"

    def unmet(self) -> Unmet | None:
        """Also unmet where the cache has no manifest and no max_length is set."""
        if self.subject.cache.manifest is None and self.subject.spec.max_length is None:
            return super().unmet() or Unmet(
                "it is not known what the cache was made with", "give --max-length"
            )
        return super().unmet()
