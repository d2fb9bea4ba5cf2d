"""The weights are not those that the run wrote.

## What it does
Compares the files in the folder of a run with the sizes and digests in its run.json. Weights that changed or are
missing are an error, other files of the model (config.json, adapter_config.json, generation_config.json) are info.

## Why it is bad
Everything that was measured about the run (losses, samples, the base it belongs to) is about other weights. The file
was overwritten by another run, cut off while it was copied, or damaged.

## Example
```yaml
tensors: {lm_head.weight: {shape: [2, 2], fill: one}}
files: {run.json: {format: 1, status: finished, files: {model.safetensors: [96, "00"]}}}
```

## Use instead
```yaml
tensors: {lm_head.weight: {shape: [2, 2], fill: one}}
files: {run.json: {format: 1, status: finished, files: {model.safetensors: [102, "5369a8cbf58b8ab187e52f34ff73b871"]}}}
```

## Fix safety
Copy the folder again from where it was trained. If the run's last checkpoint is still there, it has the same weights:
the same command with the same folder writes them again.

## References
- huggingface/diffusers#14769
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.read_run_and_check_checkpoints import (
    RUN_FILE,
    describe_files_unlike_listing,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

SETTINGS_FILES = ("config.json", "adapter_config.json", "generation_config.json")


class WeightsChangedSinceTraining(CheckpointRule):
    code = "CKP030"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        run = self.subject.run_record
        if not self.subject.has_file(RUN_FILE) or not isinstance(run.get("files"), dict):
            return Unmet(
                "there is no run.json of truetune with the digests of its files",
                "train with truetune train",
            )
        return None if run.get("status") == "finished" else Unmet("the run has not ended")

    def measurement_if_clean(self) -> str:
        """How many files are as run.json says."""
        count = len(self.subject.run_record["files"])
        return f"{count:,} of {count:,} files are as run.json says"

    def findings(self) -> Iterator[Finding]:
        run, files = self.subject.run_record, self.subject.run_record.get("files")
        if self.unmet() is not None or not isinstance(files, dict):
            return
        weights = {name: entry for name, entry in files.items() if name.endswith(".safetensors")}
        settings = {name: entry for name, entry in files.items() if name in SETTINGS_FILES}
        changed = list(describe_files_unlike_listing(self.subject.folder, weights))
        if changed:
            yield self.finding(
                f"the weights are not those that the run wrote: {changed[0]}",
                "copy the folder again from where it was trained, or start the same command there"
                " again, which writes them from its last checkpoint",
                cases=[Case(text) for text in changed],
                evidence=[f"the run ended {run['ended']}"] if run.get("ended") else (),
                count=len(changed),
                total=len(weights),
            )
        # People edit settings on purpose (stop ids, sampling), so it is a note.
        edited = list(describe_files_unlike_listing(self.subject.folder, settings))
        if edited:
            yield self.finding(
                f"settings were changed after the training: {edited[0]}",
                "check that the change was intended",
                severity="info",
                cases=[Case(text) for text in edited],
            )
