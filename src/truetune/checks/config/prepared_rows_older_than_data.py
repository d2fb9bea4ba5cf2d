"""The tokenized rows in the cache are older than the data.

## What it does
Compares the time of Axolotl's prepared folders (`dataset_prepared_path`, or `last_run_prepared` by default) or of
LLaMA-Factory's `tokenized_path` with that of the training files.

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

from truetune.checks.config.evidence.columns_and_age_of_training_files import (
    last_changed_training_file,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")
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
        if not prepared or max(prepared) >= newest[1]:
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


def _write_times_of_encoded_data_sets(config: Config, name: str) -> list[float]:
    """When each encoded data set below a folder was written."""
    found: dict[Path, float] = {}
    for base in (Path(), Path(config.path).parent):
        folder = (base / Path(name).expanduser()).resolve()
        for depth in ("", "*/", "*/*/"):
            for path in folder.glob(f"{depth}*.json") if folder.is_dir() else ():
                if path.name in SAVED:
                    found[path.parent] = max(found.get(path.parent, 0.0), path.stat().st_mtime)
    return list(found.values())


def _format_time(seconds: float) -> str:
    """A time as messages write it."""
    return datetime.datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
