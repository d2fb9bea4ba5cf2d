"""The run trains on the framework's demo data, and your own rows are not used.

## What it does
Looks at LLaMA-Factory and Axolotl configurations whose data sets all come from the framework's examples (`identity`,
`alpaca_en_demo`, `mhenrichsen/alpaca_2k_test`). It fires if a file of rows next to them, or one that
`dataset_info.json` describes, is named in no configuration in the folder.

## Why it is bad
An example config was copied and its data set was left in. The run ends well and the loss falls, but the model has only
learned the demo data, such as who made it, and nothing from your rows.

## Example
```yaml
files:
  data/dataset_info.json: {identity: {file_name: identity.json}, support: {file_name: support.json}}
  data/support.json: [{instruction: a, output: b}, {instruction: c, output: d}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: identity
  dataset_dir: data
  finetuning_type: lora
```

## Use instead
```yaml
files:
  data/dataset_info.json: {identity: {file_name: identity.json}, support: {file_name: support.json}}
  data/support.json: [{instruction: a, output: b}, {instruction: c, output: d}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: support
  dataset_dir: data
  finetuning_type: lora
```

## Fix safety
A model that was trained on the demo data has to be trained again, from the base model.

## References
- LLaMA-Factory `data/README.md`, `examples/train_lora`; Axolotl `examples`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.data.tell_training_files_from_predictions import list_training_files
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.config import Config
from truetune.settings.located_document import read_located_document
from truetune.settings.stacks.config_draft import list_of_names

DATASET_INFO = "dataset_info.json"
LLAMA_FACTORY_DEMO = re.compile(r"identity|(?:\w+_)?demo(?:_\d+)?|alpaca_(?:en|zh)(?:_demo)?")
"""Data sets in LLaMA-Factory's own `data` folder"""
AXOLOTL_DEMOS = frozenset(
    (
        "tatsu-lab/alpaca",
        "mhenrichsen/alpaca_2k_test",
        "vicgalle/alpaca-gpt4",
        "teknium/GPT4-LLM-Cleaned",
        "fozziethebeat/alpaca_messages_2k_test",
        "fozziethebeat/alpaca_messages_2k_dpo_test",
        "mlabonne/FineTome-100k",
        "philschmid/guanaco-sharegpt-style",
        "winglian/pirate-ultrachat-10k",
        "cgato/SlimOrcaDedupCleaned",
        "axolotl-ai-internal/gpumode-py2triton-reasoning-v2",
        "arcee-ai/distilabel-intel-orca-dpo-pairs",
        "Intel/orca_dpo_pairs",
        "trl-internal-testing/tiny-shakespeare",
    )
)
"""Data sets in Axolotl's examples"""
HELD_OUT = re.compile(
    r"(?:^|[_.\-])(?:test|val|valid|validation|eval|dev|holdout|predictions?)(?:[_.\-]|$)", re.I
)
"""Names of files that are not meant to be trained"""
OTHER_SETTINGS = ("*.yaml", "*.yml", "*.sh", "*.slurm", "*.sbatch", "Makefile")
MAX_SETTINGS = 50
"""Files of settings in a folder that are searched for the name of a file of rows"""


def trained_data_sets(config: Config) -> list[str]:
    """The data sets that the run trains, as the configuration calls them."""
    if config.stack == "llama-factory":
        return list_of_names(config.raw.get("dataset")) if config.raw.get("do_train", True) else []
    sets = config.raw.get("datasets")
    paths = (
        [one.get("path") for one in sets if isinstance(one, Mapping)]
        if isinstance(sets, list)
        else []
    )
    return [path for path in paths if isinstance(path, str)]


def is_demo_data_set(config: Config, name: str) -> bool:
    """Does a name belong to the examples of the framework?"""
    if config.stack == "llama-factory":
        return LLAMA_FACTORY_DEMO.fullmatch(name) is not None
    return config.stack == "axolotl" and name in AXOLOTL_DEMOS


def trains_demo_data_alone(config: Config) -> bool:
    """Are all data sets of the run those of the framework's examples?"""
    names = trained_data_sets(config) if config.stack in DemoDataTrainedOwnRowsUnused.stacks else []
    return bool(names) and all(is_demo_data_set(config, name) for name in names)


class DemoDataTrainedOwnRowsUnused(ConfigRule):
    code = "CFG071"
    fault = Fault.OWN_ROWS_HARDLY_TRAINED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("llama-factory", "axolotl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the run trains anything but demo data.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if trains_demo_data_alone(self.subject):
            return None
        return Unmet("it is about runs on the demo data of a framework alone")

    def measurement_if_clean(self) -> str:
        """What was measured: that no unused file of rows lies beside what is trained."""
        return f"beside {', '.join(trained_data_sets(self.subject))} lies no file of rows that nothing names"

    def findings(self) -> Iterator[Finding]:
        names = trained_data_sets(self.subject)
        unused = self._unused_row_files() if trains_demo_data_alone(self.subject) else []
        if not unused:
            return
        key = "dataset" if self.subject.stack == "llama-factory" else "datasets"
        named = ", ".join(name for name, _ in unused)
        yield self.finding(
            f"the run only trains on demo data ({', '.join(names)}); no configuration here names {named}",
            self._remedy_for_unused_rows(unused),
            cases=[
                setting_case(self.subject, ", ".join(names), key),
                *(Case(name, file=str(path)) for name, path in unused),
            ],
            count=len(unused),
        )

    def _remedy_for_unused_rows(self, unused: list[tuple[str, Path]]) -> str:
        """The remedy: how to train the rows that no settings name."""
        name, path = unused[0]
        if self.subject.stack == "axolotl":
            return f"add the file to datasets: path: {path.name}, with the type of its rows"
        if name in self._described_data_sets():
            return f"set dataset: {name}"
        return f"describe {path.name} in {DATASET_INFO} (file_name, columns), and set dataset: {path.stem}"

    def _data_folder(self) -> Path:
        """LLaMA-Factory's folder of data."""
        named = self.subject.raw.get("dataset_dir") or "data"
        beside = Path(self.subject.path).parent
        folders = [beside / str(named), Path(str(named)), beside.parent / str(named)]
        return next((one for one in folders if one.is_dir()), folders[0])

    def _described_data_sets(self) -> Mapping[str, Any]:
        """The data sets that dataset_info.json describes."""
        file = self._data_folder() / DATASET_INFO
        if self.subject.stack != "llama-factory" or not file.is_file():
            return {}
        try:
            value = read_located_document(file).value
        except TruetuneError:
            return {}
        return value if isinstance(value, Mapping) else {}

    def _unused_row_files(self) -> list[tuple[str, Path]]:
        """Files of rows that no settings name: as dataset_info.json calls them, else by the name of the file."""
        described = {
            str(about.get("file_name")): name
            for name, about in self._described_data_sets().items()
            if isinstance(about, Mapping)
        }
        others = self._texts_of_settings_and_jobs()
        row_files = []
        for path in self._row_files_nearby():
            name = described.get(path.name, path.name)
            is_named = any(re.search(rf"\b{re.escape(one)}\b", others) for one in (name, path.stem))
            if (
                not is_named
                and not HELD_OUT.search(path.stem)
                and not is_demo_data_set(self.subject, path.stem)
            ):
                row_files.append((name, path))
        return row_files

    def _row_files_nearby(self) -> list[Path]:
        """The files of training rows beside the configuration and in the folder of data."""
        folders = [Path(self.subject.path).parent]
        folders += [
            folder for folder in (folders[0] / "data", self._data_folder()) if folder.is_dir()
        ]
        unique = {folder.resolve(): folder for folder in folders}
        return [Path(file) for folder in unique.values() for file in list_training_files(folder)]

    def _texts_of_settings_and_jobs(self) -> str:
        """The texts of settings and jobs beside the configuration, this one included."""
        folder = Path(self.subject.path).parent
        files = [file for pattern in OTHER_SETTINGS for file in sorted(folder.glob(pattern))]
        texts = []
        for file in files[:MAX_SETTINGS]:
            try:
                texts.append(read_bytes_within_limit(file, SETTINGS).decode("utf-8", "replace"))
            except (OSError, InputLimitError):
                continue
        return "\n".join(texts)
