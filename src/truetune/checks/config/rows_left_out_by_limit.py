"""A limit that is meant for debugging leaves rows out.

## What it does
Counts the rows of the files that are here, and compares them with LLaMA-Factory's `max_samples`, and with a slice that
Axolotl is to take of a data set (`split: train[:100]`). Where the rows are not here, says so of a limit of at most 200
rows alone.

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

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.missing_input_reasons import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_rows
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

NO_LIMIT = Unmet("it is about limits on the rows of a data set: none is set")
TRIAL_ROWS = 200
"""As in scripts: public settings take 500 rows or more to be quick (LLaMA-Factory's examples 1,000)"""
SLICE = re.compile(r"\w+\[:(?P<rows>\d+)\]")


class _RowLimit(NamedTuple):
    """A limit on the rows of one data set."""

    data: str
    most: int
    key: str
    value: int | str | None
    text: str
    """`max_samples 1,000`"""


class RowsLeftOutByLimit(ConfigRule):
    code = "CFG036"
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"
    stacks = ("llama-factory", "axolotl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no limit is set, or the rows of its files are not here.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if not _row_limits(self.subject):
            return NO_LIMIT
        return None if self._rows_of_limited_files() or self._trial_limit() else NO_ROWS

    def figure(self) -> Measurement:
        """What was measured: how many rows lie beyond the limits."""
        limits = sorted({limit.text for limit in _row_limits(self.subject)})
        what = f"rows beyond {', '.join(limits)}"
        return count_measurement(what, 0, sum(self._rows_of_limited_files().values()))

    def _rows_of_limited_files(self) -> dict[_RowLimit, int]:
        """The rows of each training file that is here and has a limit."""
        counts = {limit: count_rows(limit.data) for limit in _row_limits(self.subject)}
        return {limit: count for limit, count in counts.items() if count is not None}

    def findings(self) -> Iterator[Finding]:
        over = {
            limit: count
            for limit, count in self._rows_of_limited_files().items()
            if count > limit.most
        }
        if over:
            lost = sum(count - limit.most for limit, count in over.items())
            total = sum(over.values())
            first = next(iter(over))
            yield self.finding(
                f"{first.text} leaves out {lost:,} of {total:,} rows",
                f"leave {first.key.rpartition('.')[2]} out: it is for trying things",
                evidence=[
                    f"{Path(limit.data).name} holds {count:,} rows" for limit, count in over.items()
                ],
                cases=[setting_case(self.subject, first.value, first.key)],
            )
        elif (tiny := self._trial_limit()) is not None:
            yield self.finding(
                f"{tiny.text} trains {tiny.most:,} rows of each data set at most",
                f"leave {tiny.key.rpartition('.')[2]} out: it is for trying things",
                cases=[setting_case(self.subject, tiny.value, tiny.key)],
            )

    def _trial_limit(self) -> _RowLimit | None:
        """A limit that only a trial has, where rows of a training are not here to be counted; None where they are."""
        trains = self.subject.stack != "llama-factory" or self.subject.raw.get("do_train") is True
        if not trains or len(self._rows_of_limited_files()) == len(_row_limits(self.subject)) > 0:
            return None
        return next((one for one in _row_limits(self.subject) if one.most <= TRIAL_ROWS), None)


def _row_limits(config: Config) -> list[_RowLimit]:
    """The limits on the rows of the training's data sets."""
    if config.stack == "axolotl":
        return list(_axolotl_slices(config))
    most = config.raw.get("max_samples")
    if config.stack != "llama-factory" or not isinstance(most, int) or most < 1:
        return []
    text = f"max_samples {most:,}"
    named = config.spec.data or tuple(config.spec.training.other.get("datasets") or ())
    return [_RowLimit(str(name), most, "max_samples", most, text) for name in named]


def _axolotl_slices(config: Config) -> Iterator[_RowLimit]:
    """The slices that Axolotl takes of its data sets."""
    for index, item in numbered_tables_of_list(config, "datasets"):
        path, split = item.get("path"), item.get("split")
        found = SLICE.fullmatch(split) if isinstance(split, str) else None
        if found is None or not isinstance(path, str):
            continue
        # The settings know a file by the name that it is found under.
        for name in config.spec.data:
            if Path(name).name == Path(path).name:
                text = f"split: {split}"
                yield _RowLimit(name, int(found["rows"]), f"datasets.{index}.split", split, text)
