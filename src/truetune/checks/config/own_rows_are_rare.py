"""Your own rows are less than a thousandth of the training data, next to a much larger published set.

## What it does
Reads the data sets in Axolotl's settings: local JSONL files, whose rows are counted, and hub data sets whose sizes are
published (OpenHermes-2.5, UltraChat 200k, SlimOrca, Tulu 3, ...). It fires if the local files have less than a
thousandth of the rows. It skips data sets of which only a part is used, and files that are listed more than once.

## Why it is bad
The rows are shuffled together: with 32 rows per step, one of your rows comes in every thirtieth step or less often, and
each only once per epoch. The loss is that of the large set and falls, but the model does not learn the content of your
rows. A run that `max_steps` ends before the epoch sees a part of them, or none.

## Example
```yaml
files:
  own.jsonl: [{messages: [{role: user, content: a}, {role: assistant, content: b}]}]
config:
  base_model: some/model
  datasets:
    - {path: teknium/OpenHermes-2.5, type: chat_template}
    - {path: own.jsonl, type: chat_template}
  val_set_size: 0.02
  output_dir: out
  sequence_len: 2048
  micro_batch_size: 2
  gradient_accumulation_steps: 4
  num_epochs: 1
  learning_rate: 0.0002
```

## Use instead
```yaml
files:
  own.jsonl: [{messages: [{role: user, content: a}, {role: assistant, content: b}]}]
config:
  base_model: some/model
  datasets:
    - {path: own.jsonl, type: chat_template}
  val_set_size: 0.02
  output_dir: out
  sequence_len: 2048
  micro_batch_size: 2
  gradient_accumulation_steps: 4
  num_epochs: 1
  learning_rate: 0.0002
```

## Fix safety
The training data change, and with them the model. A share of 10 % of your own rows, or a second run on them only, keeps
what the large set teaches.

## References
- The sizes are a table of known sets, and were not read from the hub
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

PUBLISHED_ROWS: Mapping[str, int] = {
    "teknium/openhermes-2.5": 1_001_551,
    "teknium/openhermes": 242_831,
    "huggingfaceh4/ultrachat_200k": 207_865,
    "open-orca/slimorca": 517_982,
    "open-orca/slimorca-dedup": 363_491,
    "open-orca/openorca": 4_233_923,
    "allenai/tulu-3-sft-mixture": 939_343,
    "allenai/tulu-v2-sft-mixture": 326_154,
    "huggingfacetb/smoltalk": 1_043_917,
    "meta-math/metamathqa": 395_000,
    "mlabonne/finetome-100k": 100_000,
    "nvidia/openmathinstruct-2": 14_000_000,
    "open-thoughts/openthoughts-114k": 113_957,
    "open-thoughts/openthoughts3-1.2m": 1_200_000,
    "wizardlmteam/wizardlm_evol_instruct_v2_196k": 143_000,
    "ise-uiuc/magicoder-evol-instruct-110k": 111_183,
}
"""Data set of the hub in small letters -> rows for training, by its page"""
MAX_SHARE = 0.001
"""Of the rows: one in a thousand is one row in thirty steps of 32. Chosen; sets that teach manners by a hundredth of
their rows are published (LIMA's 1,000 rows teach by themselves)"""
MAX_COUNTED_BYTES = 64 * 2**20
"""Of a local file whose lines are counted; a larger one is no small set"""
LIMITS = frozenset(("shards", "shards_idx", "split", "samples", "num_samples", "revision", "name"))
"""Keys of an entry that choose a part of a set, whose size is then another one"""
WHOLE_SPLITS = ("train", "train_sft", None)


class _SizedDataSet(NamedTuple):
    """One data set of the settings with its number of rows."""

    name: str
    rows: int


class OwnRowsAreRare(ConfigRule):
    code = "CFG117"
    fault = Fault.OWN_ROWS_HARDLY_TRAINED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("axolotl",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet unless own files stand beside published sets of a known size.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        own, large = (
            _local_row_files_with_counts(self.subject),
            _hub_sets_trained_whole(self.subject),
        )
        if own and large:
            return None
        return Unmet(
            "it is about own files beside published sets of a known size, all of which are trained"
        )

    def measurement_if_clean(self) -> str:
        """What was measured: the number of own rows, beside that of published ones."""
        own, large = (
            _local_row_files_with_counts(self.subject),
            _hub_sets_trained_whole(self.subject),
        )
        return (
            f"own rows {sum(one.rows for one in own):,}, beside published ones"
            f" {sum(one.rows for one in large):,}"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        own, large = _local_row_files_with_counts(config), _hub_sets_trained_whole(config)
        own_rows, large_rows = sum(one.rows for one in own), sum(one.rows for one in large)
        if not own_rows or not large_rows or own_rows >= MAX_SHARE * (own_rows + large_rows):
            return
        names = ", ".join(one.name for one in own)
        others = ", ".join(one.name for one in large)
        each = round((own_rows + large_rows) / own_rows)
        yield self.finding(
            f"only one row in {each:,} is your own ({names}: {own_rows:,}; {others}: about {large_rows:,}), so the"
            " model hardly learns from them",
            "train only on your own rows, or limit the large set so that your rows are 10 % (split:"
            f" train[:{9 * own_rows}])",
            evidence=[
                f"the size of {others} comes from a built-in table; it was not read from the hub"
            ],
            cases=[setting_case(config, f"{names} and {others}", "datasets")],
        )


def _listed_data_sets(config: Config) -> list[Mapping[str, Any]]:
    """The data sets that the settings list."""
    listed = config.raw.get("datasets")
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def _hub_sets_trained_whole(config: Config) -> list[_SizedDataSet]:
    """The sets of the hub that are trained whole; none where one is not of a known size."""
    sized_data_sets = []
    for entry in _listed_data_sets(config):
        path = str(entry.get("path"))
        if _local_file_of_lines(config, path) is not None:
            continue
        rows = PUBLISHED_ROWS.get(path.lower())
        if rows is None or _is_only_part_of_set_chosen(entry):
            return []
        sized_data_sets.append(_SizedDataSet(path, rows))
    return sized_data_sets


def _local_row_files_with_counts(config: Config) -> list[_SizedDataSet]:
    """The local files of rows, each with its lines; none where one can't be counted, or is listed twice."""
    sized_data_sets: list[_SizedDataSet] = []
    for entry in _listed_data_sets(config):
        path = str(entry.get("path"))
        file = _local_file_of_lines(config, path)
        if file is None:
            continue
        rows = _count_lines(file)
        if rows is None or path in {one.name for one in sized_data_sets}:
            return []
        sized_data_sets.append(_SizedDataSet(path, rows))
    return sized_data_sets


def _is_only_part_of_set_chosen(entry: Mapping[str, Any]) -> bool:
    """Does an entry choose a part of its set?"""
    if entry.get("split") not in WHOLE_SPLITS:
        return True
    return any(entry.get(key) is not None for key in LIMITS - {"split"})


def _local_file_of_lines(config: Config, path: str) -> Path | None:
    """The file of lines that an entry names, beside the settings or where the command is started."""
    if not path.endswith(".jsonl"):
        return None
    folder = Path(config.path).parent
    return next((one for one in (folder / path, Path(path)) if one.is_file()), None)


def _count_lines(file: Path) -> int | None:
    """The lines of a file with a text; None where it can't be read, or is large."""
    try:
        if file.stat().st_size > MAX_COUNTED_BYTES:
            return None
        with file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    except OSError:
        return None
