"""A data set is listed twice, or is used for both training and evaluation.

## What it does
Compares the training data sets with each other and with the evaluation data sets: name, files, split and everything
else that selects rows. It compares `data.train_files` with `data.val_files` in verl, `--prompt_data` with
`--eval_dataset` in OpenRLHF if they are files, and `dataset` with `dataset_val` in torchtune. verl requires `val_files`
even if it never validates (`test_freq: -1` and `val_before_train: false`), so the rule does not fire there.

## Why it is bad
The model trains twice per epoch on rows that are listed twice. If the evaluation rows are training rows, the evaluation
loss follows the training loss and says nothing about new data.

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
Removing a duplicate changes the weight of its rows. To oversample a data set on purpose, ignore this rule.

## References
- OpenRLHF/OpenRLHF#1089, UCSC-VLAA/m1#4
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.config import Config

DATA_SET_KEYS: Mapping[str, tuple[str, str | None]] = {
    "axolotl": ("datasets", "test_datasets"),
    "llama-factory": ("dataset", "eval_dataset"),
    "trl": ("datasets", None),
    "torchtune": ("dataset", "dataset_val"),
    "ms-swift": ("dataset", "val_dataset"),
    "verl": ("data.train_files", "data.val_files"),
    "openrlhf": ("prompt_data", "eval_dataset"),
}
"""Stack -> the settings that name the data sets of the training and of the evaluation"""
ROW_FILES = (".json", ".jsonl", ".parquet", ".csv", ".arrow")
"""Endings of names that mean one file, which has no splits"""
IDENTIFYING_KEYS = (
    "_component_",
    "source",
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


class DatasetListedTwiceOrAlsoEvaluated(ConfigRule):
    code = "CFG037"
    fault = Fault.ROWS_TRAINED_MORE_THAN_ONCE
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    stacks = tuple(DATA_SET_KEYS)

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

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many data sets are listed twice, or evaluated on as well."""
        return make_count_measurement(
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
        yield from self._findings_on_repeated_training_sets(train, train_key)
        if eval_key is not None and not _is_verl_without_validation(config):
            yield from self._findings_on_shared_sets(train, eval_key)
        elif config.stack == "trl":
            yield from self._findings_on_split_trained_and_evaluated()

    def _findings_on_repeated_training_sets(
        self, train: list[str], train_key: str
    ) -> Iterator[Finding]:
        """Findings on data sets that are listed several times for training."""
        config = self.subject
        if config.raw.get("dataset_exact_deduplication"):
            return
        for name, count in Counter(train).items():
            if count > 1:
                yield self.finding(
                    f"{_data_set_in_words(name)} is listed {count} times, so its rows are trained on {count} times"
                    " per epoch",
                    "keep one of the entries",
                    cases=[setting_case(config, _data_set_in_words(name), train_key)],
                    count=count,
                )

    def _findings_on_shared_sets(self, train: list[str], eval_key: str) -> Iterator[Finding]:
        """The finding on data sets that are listed for training and for evaluation."""
        config = self.subject
        evaluated = _listed_data_sets(config, eval_key)
        shared = [name for name in dict.fromkeys(train) if name in evaluated]
        if config.stack == "openrlhf":
            # Of a data set of the hub, the splits may differ.
            shared = [name for name in shared if name.endswith(ROW_FILES)]
        if shared:
            names = ", ".join(map(_data_set_in_words, shared))
            yield self.finding(
                (
                    f"{names} is used for both training and evaluation: the evaluation loss says nothing about new"
                    " data"
                ),
                f"name a data set or split in {eval_key} that is not used for training",
                cases=[setting_case(config, names, eval_key)],
            )

    def _findings_on_split_trained_and_evaluated(self) -> Iterator[Finding]:
        """Findings on one split of TRL's data set that is trained and evaluated on."""
        config = self.subject
        split = config.raw.get("dataset_test_split")
        if split and split == config.raw.get("dataset_train_split", "train"):
            yield self.finding(
                (
                    f"the split {split} is used for both training and evaluation: the evaluation loss says nothing"
                    " about new data"
                ),
                "set dataset_test_split to another split, such as test",
                cases=[setting_case(config, split, "dataset_test_split")],
            )


def _is_verl_without_validation(config: Config) -> bool:
    """Is it a run of verl that never validates? It has to name files for that all the same."""
    if config.stack != "verl":
        return False
    # By default, verl validates once: before the training.
    interval = value_at_dotted_key(config.raw, "trainer.test_freq")
    frequency = -1 if interval is None else parse_setting_number(interval)
    is_skipped = value_at_dotted_key(config.raw, "trainer.val_before_train") is False
    return is_skipped and frequency is not None and frequency <= 0


def _listed_data_sets(config: Config, key: str) -> list[str]:
    """The data sets that a key lists, each as text by which two can be compared."""
    value = value_at_dotted_key(config.raw, key)
    if isinstance(value, str):
        # `data.train_files='["a.parquet", "b.parquet"]'` of a command is a list as text.
        parts = (part.strip(" []'\"") for part in value.split(","))
        return [part for part in parts if part]
    entries = value if isinstance(value, list) else [value]
    return [_text_of_entry(entry) for entry in entries if isinstance(entry, (dict, str))]


def _text_of_entry(entry: dict[str, Any] | str) -> str:
    """The name of a data set, or what of its entry decides on its rows."""
    if isinstance(entry, str):
        return entry
    return json.dumps({key: entry[key] for key in IDENTIFYING_KEYS if key in entry}, default=str)


def _data_set_in_words(entry: str) -> str:
    """A data set as a message names it."""
    if not entry.startswith("{"):
        return entry
    values = parse_json(entry, SETTINGS)
    named = (values.get(key) for key in ("path", "data_files", "source", "_component_"))
    return str(next((name for name in named if name), "one data set"))
