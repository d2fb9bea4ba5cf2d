"""The run writes over the model that it starts from.

## What it does
Compares `output_dir` with the folder of the model and of the adapter that training starts from.

## Why it is bad
The first save replaces the base: nothing is left to compare with, to start again from, or to put an adapter on.

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
Safe.

## References
- transformers `Trainer.save_model`: it writes into `output_dir` without asking
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class OutputDirIsTheModel(ConfigRule):
    code = "CFG032"
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
                    f"the output folder {training.output_dir} is that of the"
                    f" {field.rpartition('.')[2]} itself",
                    "write to a folder of its own",
                    cases=[
                        setting_case(config, training.output_dir, "training.output_dir"),
                        setting_case(config, name, field),
                    ],
                )

    def _existing_folders(self, name: str) -> set[Path]:
        """The existing folders that a name means from here, and from the settings' folder."""
        found = {
            (base / Path(name).expanduser()).resolve()
            for base in (Path(), Path(self.subject.path).parent)
        }
        return {path for path in found if path.is_dir()}
