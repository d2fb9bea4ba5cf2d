"""A data set is named that dataset_info.json does not describe.

## What it does
Looks up each name of LLaMA-Factory's `dataset` and `eval_dataset` in the dataset_info.json of `dataset_dir`.

## Why it is bad
LLaMA-Factory stops there, in the queue of a cluster after hours of waiting.

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
Which data set was meant is your decision.

## References
- hiyouga/LLaMA-Factory: data/README.md, "Please add a dataset description in dataset_info.json"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import case_at_place
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

DATASET_INFO = "dataset_info.json"


class DatasetNotInDatasetInfo(ConfigRule):
    code = "CFG041"
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
                f"dataset_info.json describes no data set {place.key!r}: the run stops there",
                "describe it in dataset_info.json, or name one that is described",
                cases=[case_at_place(place, place.key)],
            )
