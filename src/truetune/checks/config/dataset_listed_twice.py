"""A data set is listed twice, or is trained and evaluated on.

## What it does
Compares the entries of the data sets with each other, and those of evaluation with those of training: name, files,
split and all else that chooses rows.

## Why it is bad
Rows that are listed twice are trained twice in each epoch. An evaluation on rows that are trained follows the training
loss, and shows nothing.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca, split: train}]
  test_datasets: [{path: some/rows, type: alpaca, split: train}]
  sequence_len: 2048
  micro_batch_size: 2
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca, split: train}]
  test_datasets: [{path: some/rows, type: alpaca, split: test}]
  sequence_len: 2048
  micro_batch_size: 2
```

## Fix safety
To weigh a data set more on purpose, ignore this rule.

## References
- OpenRLHF/OpenRLHF#1089, UCSC-VLAA/m1#4
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import ConfigRule
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.config import Config

DATA_SET_KEYS = {
    "axolotl": ("datasets", "test_datasets"),
    "llama-factory": ("dataset", "eval_dataset"),
    "trl": ("datasets", None),
}
IDENTIFYING_KEYS = (
    "path",
    "name",
    "data_files",
    "data_dir",
    "split",
    "revision",
    "type",
    "shards",
    "shards_idx",
    "field_messages",
)
"""What of an entry decides on its rows, and on what is made of them"""


class DatasetListedTwice(ConfigRule):
    code = "CFG037"
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    stacks = ("axolotl", "llama-factory", "trl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the settings hold no list of data sets.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return (
            None
            if self._number_of_training_sets()
            else Unmet("it is about lists of data sets, and there is none")
        )

    def figure(self) -> Measurement:
        """What was measured: how many data sets are listed twice, or evaluated on as well."""
        return count_measurement(
            "data sets that are listed twice, or evaluated on as well",
            0,
            self._number_of_training_sets(),
        )

    def _number_of_training_sets(self) -> int:
        """The number of data sets that are listed for training, one or several in a key of the
        stack.
        """
        key = DATA_SET_KEYS[self.subject.stack][0]
        return len(_listed_data_sets(self.subject, key or "")) or len(
            _listed_data_sets(self.subject, "dataset_name")
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        train_key, eval_key = DATA_SET_KEYS.get(config.stack, (None, None))
        if train_key is None:
            return
        train = _listed_data_sets(config, train_key)
        names = list(dict.fromkeys(train))
        for name in names:
            if train.count(name) > 1 and not config.raw.get("dataset_exact_deduplication"):
                yield self.finding(
                    f"{_data_set_in_words(name)} is listed {train.count(name)} times: its rows are trained as"
                    " often in each epoch",
                    "keep one of them",
                    cases=[setting_case(config, _data_set_in_words(name), train_key)],
                    count=train.count(name),
                )
        shared = [
            name for name in names if eval_key and name in _listed_data_sets(config, eval_key)
        ]
        if shared and eval_key:
            yield self.finding(
                f"{', '.join(map(_data_set_in_words, shared))} is trained and evaluated on",
                "evaluate on rows that are not trained",
                cases=[setting_case(config, ", ".join(map(_data_set_in_words, shared)), eval_key)],
            )
        elif config.stack == "trl":
            yield from self._findings_on_splits()

    def _findings_on_splits(self) -> Iterator[Finding]:
        """Findings on one split of TRL's data set that is trained and evaluated on."""
        config = self.subject
        split = config.raw.get("dataset_test_split")
        if split and split == config.raw.get("dataset_train_split", "train"):
            yield self.finding(
                f"the split {split} is trained and evaluated on",
                "name another dataset_test_split",
                cases=[setting_case(config, split, "dataset_test_split")],
            )


def _listed_data_sets(config: Config, key: str) -> list[str]:
    """The data sets that a key lists, each as text by which two can be compared."""
    value: Any = config.raw.get(key)
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    found = (
        [item for item in value if isinstance(item, (dict, str))] if isinstance(value, list) else []
    )
    return [
        (
            item
            if isinstance(item, str)
            else json.dumps({k: item[k] for k in IDENTIFYING_KEYS if k in item}, default=str)
        )
        for item in found
    ]


def _data_set_in_words(entry: str) -> str:
    """A data set as a message names it."""
    return str(parse_json(entry, SETTINGS).get("path")) if entry.startswith("{") else entry
