"""A limit that is meant for debugging leaves rows out of the training.

## What it does
Counts the rows of the local files and compares them with LLaMA-Factory's `max_samples` and the `num_samples` of its
dataset_info.json, with a slice or shard for Axolotl or torchtune (`split: train[:100]`, `train[:5%]`, `shards: 10`),
and with the number in an ms-swift data set (`rows.jsonl#500`). For open-instruct it reads `--dataset_mixer_list NAME
1`, in which 1 is a row and 1.0 all of them. If the rows are not on this machine, it only reports a limit of at most 200
rows or 5 %.

## Why it is bad
LLaMA-Factory's examples set `max_samples: 1000`. If you copy one, you train on only the first thousand rows of each
data set, and the log does not say how many there were.

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
The run trains on all rows and takes longer.

## References
- LLaMA-Factory 0.9.5 `data_args.py`: "For debugging purposes, truncate the number of examples for each dataset."
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.dataset_info_entries import dataset_info_entries
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_rows
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.read_swift_command_options import swift_datasets_with_row_counts

NO_LIMIT = Unmet("it is about limits on the rows of a data set: none is set")
TRIAL_PERCENTAGE = 5
"""Of rows that are not here: `train[:1%]` and `shards: 20` are for trying a file; recipes take 10 % or more"""
TRIAL_ROWS = 200
"""As in scripts: public settings take 500 rows or more to be quick (LLaMA-Factory's examples 1,000)"""
MIN_MEANT_PERCENTAGE = 50
"""A slice that takes most rows leaves the others to an evaluation: `train[:95%]` of torchtune's recipes"""
SLICE = re.compile(r"\w+\[:(?P<rows>\d+)(?P<percent>%)?\]")


class _RowLimit(NamedTuple):
    """A limit on the rows of one data set."""

    data: str
    most: int
    """Rows, or the percentage of them where `is_percentage`"""
    key: str
    value: int | str | None
    text: str
    """`max_samples 1,000`"""
    is_percentage: bool = False
    remove: str = ""
    """What is to be left out; empty: the key"""

    @property
    def text_that_sets_the_limit(self) -> str:
        """What sets the limit."""
        return self.remove or self.key.rpartition(".")[2]

    def row_count_after_limit(self, count: int) -> int:
        """The rows that are left of so many."""
        return math.ceil(count * self.most / 100) if self.is_percentage else self.most


class RowsLeftOutByLimit(ConfigRule):
    code = "CFG036"
    fault = Fault.SWITCH_FOR_TESTING_LEFT_ON
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"
    stacks = ("llama-factory", "axolotl", "torchtune", "ms-swift", "open-instruct")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no limit is set, or the rows of its files are not here.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if not _row_limits(self.subject):
            return NO_LIMIT
        return (
            None
            if self._row_counts_of_limited_files() or self._trial_run_limit_if_rows_not_counted()
            else NO_ROWS
        )

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many rows lie beyond the limits."""
        limits = sorted({limit.text for limit in _row_limits(self.subject)})
        what = f"rows beyond {', '.join(limits)}"
        return make_count_measurement(what, 0, sum(self._row_counts_of_limited_files().values()))

    def _row_counts_of_limited_files(self) -> dict[_RowLimit, int]:
        """The rows of each training file that is here and has a limit."""
        counts = {limit: count_rows(limit.data) for limit in _row_limits(self.subject)}
        return {limit: count for limit, count in counts.items() if count is not None}

    def findings(self) -> Iterator[Finding]:
        over = {
            limit: count
            for limit, count in self._row_counts_of_limited_files().items()
            if count > limit.row_count_after_limit(count)
        }
        if over:
            lost = sum(count - limit.row_count_after_limit(count) for limit, count in over.items())
            total = sum(over.values())
            first = next(iter(over))
            yield self.finding(
                f"{first.text} leaves {lost:,} of {total:,} rows out of the training",
                f"remove {first.text_that_sets_the_limit}, unless this is a test run",
                evidence=[
                    f"{Path(limit.data).name} has {count:,} rows" for limit, count in over.items()
                ],
                cases=[setting_case(self.subject, first.value, first.key)],
            )
        elif (tiny := self._trial_run_limit_if_rows_not_counted()) is not None:
            most = f"{tiny.most} % of the" if tiny.is_percentage else f"{tiny.most:,}"
            yield self.finding(
                f"{tiny.text}: the run trains on at most {most} rows of each data set",
                f"remove {tiny.text_that_sets_the_limit}, unless this is a test run",
                cases=[setting_case(self.subject, tiny.value, tiny.key)],
            )

    def _trial_run_limit_if_rows_not_counted(self) -> _RowLimit | None:
        """A limit that only a trial has, where rows of a training are not here to be counted; None where they are."""
        trains = self.subject.stack != "llama-factory" or self.subject.raw.get("do_train") is True
        if (
            not trains
            or len(self._row_counts_of_limited_files()) == len(_row_limits(self.subject)) > 0
        ):
            return None
        return next(
            (
                one
                for one in _row_limits(self.subject)
                if one.most <= (TRIAL_PERCENTAGE if one.is_percentage else TRIAL_ROWS)
            ),
            None,
        )


def _row_limits(config: Config) -> list[_RowLimit]:
    """The limits on the rows of the training's data sets."""
    if config.stack in ("axolotl", "torchtune"):
        return list(_axolotl_and_torchtune_row_limits(config))
    if config.stack == "ms-swift":
        return list(_swift_row_limits(config))
    if config.stack == "open-instruct":
        return list(_open_instruct_row_limits(config))
    if config.stack != "llama-factory":
        return []
    return [*_llamafactory_row_limits(config), *_dataset_info_row_limits(config)]


def _open_instruct_row_limits(config: Config) -> Iterator[_RowLimit]:
    """The rows that open-instruct takes of each data set: a number with a dot is a share, one without is a count."""
    mixture = config.raw.get("dataset_mixer_list")
    parts = mixture if isinstance(mixture, list) else []
    for name, count in zip(parts[::2], parts[1::2], strict=False):
        if type(count) is int and count > 0:
            text = f"dataset_mixer_list {name} {count}"
            key = "dataset_mixer_list"
            yield _RowLimit(
                str(name),
                count,
                key,
                f"{name} {count}",
                text,
                remove=f"{count} (1.0 takes all rows)",
            )


def _llamafactory_row_limits(config: Config) -> Iterator[_RowLimit]:
    """LLaMA-Factory's limit on the rows of each data set."""
    most = config.raw.get("max_samples")
    if not isinstance(most, int) or most < 1:
        return
    named = config.spec.data or tuple(config.spec.training.other.get("datasets") or ())
    for name in named:
        yield _RowLimit(str(name), most, "max_samples", most, f"max_samples {most:,}")


def _dataset_info_row_limits(config: Config) -> Iterator[_RowLimit]:
    """The rows that dataset_info.json has drawn of its data sets."""
    entries = dataset_info_entries(config)
    # Of several sets, the numbers make a mixture.
    for name, entry in entries.items() if len(entries) == 1 else ():
        most = entry.get("num_samples")
        if isinstance(most, int) and most > 0:
            file = Path(str(entry.get("file_name") or name)).name
            data = next((one for one in config.spec.data if Path(one).name == file), name)
            text = f"num_samples {most:,} of {name}"
            yield _RowLimit(data, most, "dataset", name, text, remove="num_samples")


def _swift_row_limits(config: Config) -> Iterator[_RowLimit]:
    """The rows that ms-swift draws of its data sets: `rows.jsonl#500`."""
    files = (*config.spec.data, *config.row_files)
    sets = swift_datasets_with_row_counts(config.raw.get("dataset"))
    for name, most in sets:
        # Of several sets, the numbers make a mixture.
        if most is not None and len(sets) == 1:
            data = next((one for one in files if Path(one).name == Path(name).name), name)
            sampled = f"{Path(name).name}#{most}"
            yield _RowLimit(data, most, "dataset", sampled, sampled, remove=f"#{most}")


def _axolotl_and_torchtune_row_limits(config: Config) -> Iterator[_RowLimit]:
    """The parts that Axolotl and torchtune take of their data sets."""
    for key, item in _data_set_tables(config):
        path, split, shards = item.get("path"), item.get("split"), item.get("shards")
        match = SLICE.fullmatch(split) if isinstance(split, str) else None
        data = _file_of_table(config, item)
        if data is None or (not isinstance(path, str) and config.stack == "axolotl"):
            continue
        if match is not None:
            is_share = match["percent"] is not None
            if is_share and int(match["rows"]) >= MIN_MEANT_PERCENTAGE:
                continue
            yield _RowLimit(
                data, int(match["rows"]), f"{key}.split", split, f"split: {split}", is_share
            )
        elif isinstance(shards, int) and shards > 1 and config.stack == "axolotl":
            share = math.ceil(100 / shards)
            yield _RowLimit(data, share, f"{key}.shards", shards, f"shards: {shards}", True)


def _data_set_tables(config: Config) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the data sets, each with its key in the file."""
    if config.stack == "torchtune" and isinstance(config.raw.get("dataset"), Mapping):
        yield "dataset", config.raw["dataset"]
        return
    name = "dataset" if config.stack == "torchtune" else "datasets"
    for index, item in numbered_tables_of_list(config, name):
        yield f"{name}.{index}", item


def _file_of_table(config: Config, item: Mapping[str, Any]) -> str | None:
    """The file that a table names, where it is here; else its name; None where no one file is named."""
    named = item.get("data_files") or item.get("path") or item.get("source")
    if not isinstance(named, str):
        return None
    known = next((one for one in config.spec.data if Path(one).name == Path(named).name), None)
    if known is not None:
        return known
    if config.stack == "axolotl":
        return named
    # The reader of torchtune's recipes keeps no file of which a part is taken.
    return str(find_in_folder_or_parents(Path(config.path).parent, named) or named)
