"""The tokenized rows in the cache are older than the data.

## What it does
Compares the time of Axolotl's prepared folders (`dataset_prepared_path`, or `last_run_prepared` by default) or of
LLaMA-Factory's `tokenized_path` with that of the training files. For LLaMA-Factory, which does not look at its settings
again, it also compares the number of tokenized rows with that of the data set: it fires if they differ by 10 % or more
and rows are not packed.

## Why it is bad
Axolotl finds its prepared rows by a hash of settings and names, not of the rows or the tokenizer's files (nor of
`excess_length_strategy`, `tokens`, `min_sample_len`, `tokenizer_revision`). LLaMA-Factory ignores `dataset`, `template`
and `cutoff_len` if the folder has files. An edited data file is then not read: the run trains on the old rows and
labels.

## Example
```yaml
files:
  rows.jsonl: {rows: 3}
  prepared/1f0/state.json: {}
ages: {prepared/1f0/state.json: 7200, rows.jsonl: 60}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  dataset_prepared_path: prepared
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 3}
  prepared/1f0/state.json: {}
ages: {prepared/1f0/state.json: 60, rows.jsonl: 7200}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  dataset_prepared_path: prepared
```

## Fix safety
Safe: the rows are tokenized again. `axolotl preprocess` always does that.

## References
- axolotl-ai-cloud/axolotl#1265, axolotl-ai-cloud/axolotl#885, axolotl-ai-cloud/axolotl#1136, hiyouga/LLaMA-Factory#6335
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    last_changed_training_file,
)
from truetune.checks.config.evidence.dataset_info_entries import dataset_info_entries
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import (
    count_rows,
    count_training_rows,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")
MIN_DIFFERENCE = 0.1
"""Of the rows, from which the tokenized rows are those of other data. LLaMA-Factory leaves out a few broken rows"""
MIN_ROWS_APART = 5
DEFAULT_FOLDER = "last_run_prepared"


class PreparedRowsOlderThanData(ConfigRule):
    code = "CFG026"
    fault = Fault.PREPARED_ROWS_OUT_OF_DATE
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    stacks = ("axolotl", "llama-factory")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no training file is here.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NO_ROWS if last_changed_training_file(self.subject) is None else None

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: how many encoded data sets are older than the data; or that there are none."""
        name = self.subject.spec.training.prepared_path or (
            DEFAULT_FOLDER if self.subject.stack == "axolotl" else None
        )
        prepared = _write_times_of_encoded_data_sets(self.subject, name) if name else []
        if not prepared:
            return (
                f"there are no encoded rows in {name}"
                if name
                else "no folder of encoded rows is named"
            )
        return make_count_measurement(
            "encoded data sets that are older than the data", 0, len(prepared)
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        newest = last_changed_training_file(config)
        if config.stack not in ("axolotl", "llama-factory") or newest is None:
            return
        name = config.spec.training.prepared_path or (
            DEFAULT_FOLDER if config.stack == "axolotl" else None
        )
        prepared = _write_times_of_encoded_data_sets(config, name) if name else []
        if name is None or not prepared:
            return
        other = _rows_of_other_data(config, name) if config.stack == "llama-factory" else None
        if other is not None:
            yield self._finding_on_rows_of_other_data(name, other)
            return
        if max(prepared) >= newest[1]:
            return
        yield self.finding(
            f"{newest[0].name} is newer than the tokenized data in {name}: the run would train on the old rows",
            f"delete {name}, so that the rows are tokenized again",
            evidence=[
                f"tokenized: {_format_time(max(prepared))}",
                f"data changed: {_format_time(newest[1])}",
            ],
            cases=[
                setting_case(config, name, "training.prepared_path"),
                Case("the data", file=str(newest[0])),
            ],
        )

    def _finding_on_rows_of_other_data(self, name: str, other: _OtherRows) -> Finding:
        """The finding on tokenized rows that are not those of the data set which the settings name."""
        config = self.subject
        return self.finding(
            f"{name} already holds {other.tokenized:,} tokenized rows, and the data set makes {other.rows:,}:"
            " LLaMA-Factory trains on the old rows and ignores dataset, template, cutoff_len and overwrite_cache",
            f"delete {name}, or set tokenized_path to a new folder",
            evidence=[other.why],
            cases=[setting_case(config, name, "training.prepared_path")],
        )


class _OtherRows(NamedTuple):
    """Numbers of rows that differ."""

    tokenized: int
    rows: int
    why: str
    """How the rows of the data set were counted"""


def _rows_of_other_data(config: Config, name: str) -> _OtherRows | None:
    """The tokenized rows and those of the data set, where the numbers differ too much; None otherwise."""
    rows = count_training_rows(config)
    tokenized = _count_tokenized_rows(config, name)
    is_mixed = config.raw.get("mix_strategy") not in (None, "concat")
    # `num_samples` of a data set takes a part of its rows, or some several times.
    is_sampled = any(entry.get("num_samples") for entry in dataset_info_entries(config).values())
    if rows is None or tokenized is None or config.spec.training.packing or is_mixed or is_sampled:
        return None
    difference = abs(tokenized - rows.count)
    if difference < max(MIN_ROWS_APART, MIN_DIFFERENCE * rows.count):
        return None
    return _OtherRows(tokenized, rows.count, rows.why)


def _count_tokenized_rows(config: Config, name: str) -> int | None:
    """The tokenized rows for training in a folder that `datasets` saved; None where they can't be counted."""
    for base in (Path(), Path(config.path).parent):
        folder = (base / Path(name).expanduser()).resolve()
        for part in (folder / "train", folder):
            if (part / "state.json").is_file():
                return count_rows(str(part))
    return None


def _write_times_of_encoded_data_sets(config: Config, name: str) -> list[float]:
    """When each encoded data set below a folder was written."""
    times_by_folder: dict[Path, float] = {}
    for base in (Path(), Path(config.path).parent):
        folder = (base / Path(name).expanduser()).resolve()
        for depth in ("", "*/", "*/*/"):
            for path in folder.glob(f"{depth}*.json") if folder.is_dir() else ():
                if path.name in SAVED:
                    times_by_folder[path.parent] = max(
                        times_by_folder.get(path.parent, 0.0), path.stat().st_mtime
                    )
    return list(times_by_folder.values())


def _format_time(seconds: float) -> str:
    """A time as messages write it."""
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
