"""A file of the checkpoint is cut off, missing, or not what its name says.

## What it does
Reads the headers of all safetensors files and the index of the shards. It compares lengths, shapes and offsets with
each other and with the size of the file. It reports missing shards, tensors that the index names and no file has, or
that a file has and the index does not name, and tensors that two files have. Broken JSON files are reported too.

## Why it is bad
Loading fails, or fills what is missing with random numbers and only prints a warning. A copy that stopped halfway, or a
Git LFS pointer, looks like a checkpoint.

## Example
```yaml
llama: 2
files:
  model.safetensors.index.json: {weight_map: {lm_head.weight: model-00001-of-00002.safetensors}}
  config.json: "{"
```

## Use instead
```yaml
llama: 2
```

## Fix safety
Copy or download the file again (a Git LFS pointer: `git lfs pull`), or save again if the original is broken too.

## References
- huggingface/transformers#28510, huggingface/transformers#20082
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Chosen to fit a terminal: a broken index has a fault for each tensor. The cases name all of them.
SHOWN_FAULTS = 10


class WeightsFileBroken(CheckpointRule):
    code = "CKP001"
    fault = Fault.CHECKPOINT_INCOMPLETE
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        return None if self.subject.weights.files else Unmet("there is no safetensors file")

    def measurement_if_clean(self) -> str:
        """The numbers of tensors and files whose lengths, shapes and offsets fit."""
        weights = self.subject.weights
        files = f"{len(weights.files):,} file{'s' * (len(weights.files) != 1)}"
        return f"lengths, shapes and offsets of {len(weights.tensors):,} tensors in {files} fit"

    def findings(self) -> Iterator[Finding]:
        faults = self.subject.faults
        if not faults:
            return
        files = sorted({fault.file for fault in faults})
        more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
        yield self.finding(
            f"{files[0]}{more}: {faults[0].text}",
            "copy or download these files again (Git LFS: git lfs pull); if the original is broken too, save the model"
            " again",
            evidence=[f"{fault.file}: {fault.text}" for fault in faults[1:SHOWN_FAULTS]],
            cases=[Case(fault.text, file=fault.file) for fault in faults],
            count=len(faults),
        )
