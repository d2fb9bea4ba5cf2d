"""A data set is not described in dataset_info.json.

## What it does
Looks up each name in LLaMA-Factory's `dataset` and `eval_dataset` in the `dataset_info.json` of `dataset_dir`.

## Why it is bad
LLaMA-Factory stops at the first unknown name. On a cluster that may happen after hours in the queue.

## Example
```yaml
config:
  stage: sft
  model_name_or_path: some/model
  dataset: identity_en
  dataset_dir: described_sets
  template: llama3
  finetuning_type: lora
  cutoff_len: 2048
files: {described_sets/dataset_info.json: '{"identity": {"file_name": "identity.json"}}'}
```

## Use instead
```yaml
config:
  stage: sft
  model_name_or_path: some/model
  dataset: identity
  dataset_dir: described_sets
  template: llama3
  finetuning_type: lora
  cutoff_len: 2048
files: {described_sets/dataset_info.json: '{"identity": {"file_name": "identity.json"}}'}
```

## Fix safety
Only you know which data set was meant.

## References
- hiyouga/LLaMA-Factory: data/README.md, "Please add a dataset description in dataset_info.json"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import case_at_place
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

DATASET_INFO = "dataset_info.json"


class DatasetNotInDatasetInfo(ConfigRule):
    code = "CFG041"
    fault = Fault.ROW_FORMAT_NOT_RECOGNISED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    since = "0.1.0"
    stacks = ("llama-factory",)
    about = ("dataset", "eval_dataset")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no dataset_info.json is in the folder of the data.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        folder = str(config.raw.get("dataset_dir") or "data")
        if any(
            (base / folder / DATASET_INFO).is_file() for base in (Path(), Path(config.path).parent)
        ):
            return None
        return Unmet(f"there is no {DATASET_INFO} in {folder}", "name its folder with dataset_dir")

    def findings(self) -> Iterator[Finding]:
        for place in self.subject.missing:
            yield self.finding(
                f"dataset_info.json has no data set named {place.key!r}, so the run stops at the start",
                "add an entry for it to dataset_info.json, or correct the name",
                cases=[case_at_place(place, place.key)],
            )
