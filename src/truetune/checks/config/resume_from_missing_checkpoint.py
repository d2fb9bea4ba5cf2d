"""The checkpoint to resume from does not exist, or has no training state.

## What it does
Looks for the folder of `resume_from_checkpoint` and for trainer_state.json in it, if the parent folder is on this
machine.

## Why it is bad
The run stops after loading the model and the data. If the folder only contains an adapter or weights, there is no
optimizer, schedule or step to resume: training starts from the beginning.

## Example
```yaml
files:
  out/trainer_log.jsonl: []
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  resume_from_checkpoint: out/checkpoint-500
```

## Use instead
```yaml
files:
  out/checkpoint-500/trainer_state.json: {}
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  resume_from_checkpoint: out/checkpoint-500
```

## Fix safety
Safe: no file changes.

## References
- huggingface/transformers#24274, huggingface/peft#574, tloen/alpaca-lora#72
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class ResumeFromMissingCheckpoint(ConfigRule):
    code = "CFG031"
    fault = Fault.RESUME_LOSES_STATE
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    about = ("training.resume_from_checkpoint",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the folder to resume from is not on this machine.
        """
        name = self.subject.spec.training.resume_from_checkpoint
        if isinstance(name, str) and not any(
            base.is_dir() for base in self._possible_folders(name)
        ):
            return Unmet(f"{name} is not on this machine", "check where the run starts")
        return super().unmet()

    def _possible_folders(self, name: str) -> list[Path]:
        """Where a folder may be that the settings name."""
        return [base / Path(name).expanduser() for base in (Path(), Path(self.subject.path).parent)]

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        name = config.spec.training.resume_from_checkpoint
        if not isinstance(name, str) or "://" in name:
            return
        wanted = Path(name).expanduser()
        places = self._possible_folders(name)
        existing_folder = next((place for place in places if place.is_dir()), None)
        if existing_folder is None and not any(
            place.parent.is_dir() and len(wanted.parts) > 1 for place in places
        ):
            return
        if existing_folder is None or not (existing_folder / "trainer_state.json").is_file():
            yield self.finding(
                f"{name} {'has no trainer_state.json' if existing_folder else 'does not exist'}: there is nothing to"
                " resume from",
                "set resume_from_checkpoint to a checkpoint-N folder of the run, or remove resume_from_checkpoint",
                cases=[setting_case(config, name, "training.resume_from_checkpoint")],
            )
