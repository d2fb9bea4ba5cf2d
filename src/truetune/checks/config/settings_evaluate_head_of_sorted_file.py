"""Only the first rows of a sorted validation file are evaluated, so some kinds of rows are never tested.

## What it does
Reads the evaluation files that LLaMA-Factory limits with `max_samples`, and those of which Axolotl takes a slice
(`split: train[:60]`), if they are on this machine. It compares the first rows with the whole file: by a column of kinds
or labels (`task`, `source`, `language`), by system prompts, and by answer lengths. It names what is missing from the
first rows, if a random sample of that size would contain it.

## Why it is bad
The evaluation loss then covers one kind of row: if its answers are short, it is far below the training loss. It says
nothing about the other kinds, and the best checkpoint is the best one for the kind that comes first.

## Example
```yaml
files:
  train.json: [{instruction: a, output: b}, {instruction: c, output: d}]
  val.json:
    - {instruction: q1, output: "no", task: sort}
    - {instruction: q2, output: "no", task: sort}
    - {instruction: q3, output: "no", task: sort}
    - {instruction: q4, output: "no", task: sort}
    - {instruction: q5, output: "no", task: sort}
    - {instruction: q6, output: "no", task: sort}
    - {instruction: q7, output: "no", task: sort}
    - {instruction: q8, output: "no", task: sort}
    - {instruction: q9, output: "no", task: sort}
    - {instruction: q10, output: "no", task: sort}
    - {instruction: q11, output: "no", task: sort}
    - {instruction: q12, output: "no", task: sort}
    - {instruction: q13, output: "no", task: sort}
    - {instruction: q14, output: "no", task: sort}
    - {instruction: q15, output: "no", task: sort}
    - {instruction: q16, output: "no", task: sort}
    - {instruction: q17, output: "no", task: sort}
    - {instruction: q18, output: "no", task: sort}
    - {instruction: q19, output: "no", task: sort}
    - {instruction: q20, output: "no", task: sort}
    - {instruction: w1, output: "Once", task: tell}
    - {instruction: w2, output: "Then", task: tell}
    - {instruction: w3, output: "When", task: tell}
    - {instruction: w4, output: "Here", task: tell}
    - {instruction: w5, output: "From", task: tell}
    - {instruction: w6, output: "Long", task: tell}
    - {instruction: w7, output: "With", task: tell}
    - {instruction: w8, output: "Last", task: tell}
    - {instruction: w9, output: "Soon", task: tell}
    - {instruction: w10, output: "Late", task: tell}
    - {instruction: w11, output: "Over", task: tell}
    - {instruction: w12, output: "Down", task: tell}
config:
  base_model: some/model
  datasets: [{path: train.json, type: alpaca}]
  test_datasets: [{path: val.json, type: alpaca, split: "train[:20]"}]
  adapter: lora
  num_epochs: 1
```

## Use instead
```yaml
files:
  train.json: [{instruction: a, output: b}, {instruction: c, output: d}]
  val.json:
    - {instruction: q1, output: "no", task: sort}
    - {instruction: w1, output: "Once", task: tell}
    - {instruction: q2, output: "no", task: sort}
    - {instruction: w2, output: "Then", task: tell}
config:
  base_model: some/model
  datasets: [{path: train.json, type: alpaca}]
  test_datasets: [{path: val.json, type: alpaca, split: train}]
  adapter: lora
  num_epochs: 1
```

## Fix safety
The evaluation uses other rows, so its loss can't be compared with that of earlier runs. To shuffle a JSONL file once:
`shuf val.jsonl > shuffled.jsonl`.

## References
- LLaMA-Factory 0.9.5 `data/loader.py`: `dataset.select(range(max_samples))`
- huggingface/datasets documentation, "Slice splits"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.evaluations_on_head_of_sorted_file import (
    SPLIT_OF_ROWS,
    describe_head_difference,
    first_rows_lacking_kind_or_length,
)
from truetune.checks.source.evidence.file_rows_behind_values import read_first_rows_of_file
from truetune.settings.config import Config

NO_LIMIT = Unmet("it is about evaluations on the first rows of a file: none is set")
NO_FILE = Unmet("the evaluation's rows are not on this machine")


class _LimitedFile(NamedTuple):
    """A file of which the first rows are evaluated."""

    file: str
    rows: int
    is_percent: bool
    key: str
    value: int | str


class SettingsEvaluateHeadOfSortedFile(ConfigRule):
    code = "CFG144"
    fault = Fault.EVALUATION_ROWS_NOT_REPRESENTATIVE
    symptoms = ("odd-metrics",)
    severity = "warning"
    stacks = ("llama-factory", "axolotl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no limit cuts the evaluation, or none of its files is here.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        limits = list(_limited_evaluation_files(self.subject))
        if not limits:
            return NO_LIMIT
        return None if any(read_first_rows_of_file(Path(one.file)) for one in limits) else NO_FILE

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many limited evaluation files lack a kind of row in their first rows."""
        limits = list(_limited_evaluation_files(self.subject))
        what = "evaluation files whose first rows lack a kind of row"
        return make_count_measurement(what, 0, len(limits))

    def findings(self) -> Iterator[Finding]:
        for limit in _limited_evaluation_files(self.subject):
            rows = read_first_rows_of_file(Path(limit.file))
            count = round(len(rows) * limit.rows / 100) if limit.is_percent else limit.rows
            head = first_rows_lacking_kind_or_length(rows, Path(limit.file).name, count)
            if head is not None:
                name = limit.key.rpartition(".")[2]
                yield self.finding(
                    f"{name} {limit.value} evaluates only the first {head.rows:,} of {head.whole:,} rows of"
                    f" {head.source}: {describe_head_difference(head)}",
                    "shuffle the rows of the file once, or remove the limit to evaluate all of them",
                    cases=[setting_case(self.subject, limit.value, limit.key)],
                )
                return


def _limited_evaluation_files(config: Config) -> Iterator[_LimitedFile]:
    """The evaluation files of which the settings take the first rows."""
    if config.stack == "axolotl":
        yield from _sliced_axolotl_sets(config)
        return
    most = config.raw.get("max_samples")
    if isinstance(most, int) and not isinstance(most, bool) and most > 0:
        for file in config.spec.eval_data:
            yield _LimitedFile(file, most, False, "max_samples", most)


def _sliced_axolotl_sets(config: Config) -> Iterator[_LimitedFile]:
    """The slices that Axolotl takes of its evaluation sets."""
    for index, item in numbered_tables_of_list(config, "test_datasets"):
        path, split = item.get("path"), item.get("split")
        match = SPLIT_OF_ROWS.fullmatch(split) if isinstance(split, str) else None
        if match is None or not isinstance(path, str) or not isinstance(split, str):
            continue
        # The settings know a file by the name that it is found under.
        for file in config.spec.eval_data:
            if Path(file).name == Path(path).name:
                key = f"test_datasets.{index}.split"
                yield _LimitedFile(file, int(match["rows"]), bool(match["percent"]), key, split)
