"""LLaMA-Factory resumes an earlier run from the output folder, although no setting asks for it.

## What it does
Looks for `checkpoint-N` folders in `output_dir` if neither `overwrite_output_dir` nor `resume_from_checkpoint` is set.

## Why it is bad
LLaMA-Factory then resumes from the last checkpoint, with one line in the log. A run with new data, a new learning rate
or a new template continues from where the old run stopped, or does not train at all: if the old run was finished, the
new one ends at once.

## Example
```yaml
files:
  out/checkpoint-500/trainer_state.json: {}
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  output_dir: out
```

## Use instead
```yaml
files:
  out/checkpoint-500/trainer_state.json: {}
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  output_dir: out-2
```

## Fix safety
Training starts from step 0. With `overwrite_output_dir: true`, the old checkpoints are overwritten. If you want to
resume, set `resume_from_checkpoint`.

## References
- LLaMA-Factory 0.9.5 `hparams/parser.py`: "Change `output_dir` or use `overwrite_output_dir` to avoid."
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule


class RunResumesUnasked(ConfigRule):
    code = "CFG033"
    fault = Fault.OUTPUT_FOLDER_ALREADY_IN_USE
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "odd-metrics")
    severity = "warning"
    since = "0.1.0"
    stacks = ("llama-factory",)
    about = ("do_train",)
    reads = ("training.output_dir", "overwrite_output_dir")

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        asked = config.raw.get("overwrite_output_dir") or training.resume_from_checkpoint
        if (
            config.stack != "llama-factory"
            or not training.output_dir
            or asked
            or not config.raw.get("do_train")
        ):
            return
        for base in (Path(), Path(config.path).parent):
            folder = base / Path(training.output_dir).expanduser()
            checkpoints = [
                p
                for p in folder.glob("checkpoint-*")
                if p.is_dir() and p.name.rpartition("-")[2].isdecimal()
            ]
            if checkpoints:
                last = max(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]))
                yield self.finding(
                    (
                        f"the run does not start from the base model: it resumes from {last.name} of an earlier run"
                        " in the same folder"
                    ),
                    (
                        "set output_dir to a new folder, or set overwrite_output_dir: true (which overwrites the"
                        " old checkpoints)"
                    ),
                    cases=[
                        setting_case(config, training.output_dir, "training.output_dir"),
                        Case(last.name, file=str(last)),
                    ],
                    count=len(checkpoints),
                )
                return
