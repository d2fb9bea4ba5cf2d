"""output_dir is the folder of the base model, so saving overwrites it.

## What it does
Compares `output_dir` with the folders of the model and the adapter that training starts from.

## Why it is bad
The first save replaces the base model: you can no longer compare with it, restart from it, or load an adapter on it.

## Example
```yaml
files:
  model/config.json: {model_type: llama}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  output_dir: model
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  output_dir: out
```

## Fix safety
Safe: only the place of the output changes.

## References
- transformers `Trainer.save_model`: it writes into `output_dir` without asking
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class OutputDirIsTheModel(ConfigRule):
    code = "CFG032"
    fault = Fault.OUTPUT_FOLDER_ALREADY_IN_USE
    severity = "error"
    since = "0.1.0"
    about = ("training.output_dir",)
    reads = ("model", "training.adapter")

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if not training.output_dir:
            return
        for field, name in (("model", config.spec.model), ("training.adapter", training.adapter)):
            if name and self._existing_folders(name) & self._existing_folders(training.output_dir):
                yield self.finding(
                    f"output_dir {training.output_dir} is the folder that the {field.rpartition('.')[2]} is loaded"
                    " from: saving would overwrite it",
                    "set output_dir to another folder, such as outputs/run-1",
                    cases=[
                        setting_case(config, training.output_dir, "training.output_dir"),
                        setting_case(config, name, field),
                    ],
                )

    def _existing_folders(self, name: str) -> set[Path]:
        """The existing folders that a name means from here, and from the settings' folder."""
        folders = {
            (base / Path(name).expanduser()).resolve()
            for base in (Path(), Path(self.subject.path).parent)
        }
        return {path for path in folders if path.is_dir()}
