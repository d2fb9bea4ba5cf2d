"""A limit that is meant for debugging leaves rows out.

## What it does
Counts the rows of the files that are here, and compares them with LLaMA-Factory's `max_samples`.

## Why it is bad
Its examples set `max_samples: 1000`, and whoever copies one trains on the first thousand rows of each data set. Nothing
in the log says how many there were.

## Example
```yaml
files:
  data/dataset_info.json: {rows: {file_name: rows.json}}
  data/rows.json: [{instruction: a, output: b}, {instruction: c, output: d}, {instruction: e, output: f}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  dataset_dir: data
  finetuning_type: lora
  max_samples: 2
```

## Use instead
```yaml
files:
  data/dataset_info.json: {rows: {file_name: rows.json}}
  data/rows.json: [{instruction: a, output: b}, {instruction: c, output: d}, {instruction: e, output: f}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  dataset_dir: data
  finetuning_type: lora
```

## Fix safety
The run gets longer.

## References
- LLaMA-Factory 0.9.5 `data_args.py`: "For debugging purposes, truncate the number of examples for each dataset."
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.missing_input_reasons import NO_ROWS
from truetune.checks.config.evidence.setting_places import setting_case
from truetune.checks.config.evidence.step_counts import count_rows
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, count_measurement
from truetune.checks.rule import ConfigRule
from truetune.checks.setting_values import format_setting


class RowsLeftOutByLimit(ConfigRule):
    code = "CFG036"
    severity = "warning"
    since = "0.1.0"
    stacks = ("llama-factory",)
    about = ("max_samples",)

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if self._counts() else NO_ROWS

    def figure(self) -> Measurement:
        what = f"rows beyond {format_setting(self.subject, 'max_samples')}"
        return count_measurement(what, 0, sum(self._counts().values()))

    def _counts(self) -> dict[str, int]:
        """The rows of each training file that is here."""
        counts = {name: count_rows(name) for name in self.subject.spec.data}
        return {name: count for name, count in counts.items() if count is not None}

    def findings(self) -> Iterator[Finding]:
        config, limit = self.subject, self.subject.raw.get("max_samples")
        if config.stack != "llama-factory" or not isinstance(limit, int) or limit < 1:
            return
        over = {name: count for name, count in self._counts().items() if count > limit}
        if over:
            lost, total = sum(count - limit for count in over.values()), sum(over.values())
            yield self.finding(
                f"max_samples {limit:,} leaves out {lost:,} of {total:,} rows",
                "leave max_samples out: it is for trying things",
                evidence=[
                    f"{Path(name).name} holds {count:,} rows" for name, count in over.items()
                ],
                cases=[setting_case(config, limit, "max_samples")],
                count=lost,
                total=total,
            )
