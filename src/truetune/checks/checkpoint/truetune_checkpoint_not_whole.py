"""A checkpoint of `truetune train` is incomplete.

## What it does
Compares the files of a checkpoint with whole.json, which truetune writes last, with the size and a digest of each file.
A `checkpoint-N` of a run (run.json is in the folder above) without whole.json is incomplete too, and so are weights in
the folder of a run that has not ended.

## Why it is bad
The process was killed, or the disk was full, while the checkpoint was written. Its weights may load and belong to two
different steps; what resuming needs may be missing or old.

## Example
```yaml
lora: [q_proj]
files: {whole.json: {format: 1, step: 10, files: {optimizer.pt: [20, "00"]}}, optimizer.pt: "0123456789"}
```

## Use instead
```yaml
lora: [q_proj]
files: {whole.json: {format: 1, step: 10, files: {optimizer.pt: [10, "42e3751db34b3d102c382fa96db38bbb"]}},
        optimizer.pt: "0123456789"}
```

## Fix safety
Start the same command again: the run moves such a checkpoint out of the way, and continues from the last complete one.

## References
- huggingface/transformers#35782, huggingface/transformers#35525, vllm-project/speculators#739
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.read_run_and_check_checkpoints import (
    RUN_FILE,
    WHOLE_FILE,
    find_checkpoint_fault,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

REMEDY = "start the same command again: the run continues from its last complete checkpoint"


class TruetuneCheckpointNotWhole(CheckpointRule):
    code = "CKP029"
    fault = Fault.CHECKPOINT_INCOMPLETE
    symptoms = ("garbage-output", "nothing-is-learned", "several-gpus")
    severity = "error"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        checkpoint = self.subject
        if checkpoint.has_file(WHOLE_FILE) or (
            checkpoint.has_file(RUN_FILE) and checkpoint.run_record
        ):
            return None
        return Unmet(
            "no whole.json and no run.json says what it should hold",
            "train with truetune train, which does",
        )

    def measurement_if_clean(self) -> str:
        """How many files are as whole.json says; the status of the run, for a whole run."""
        files = (read_json_object(self.subject.folder / WHOLE_FILE, []) or {}).get("files")
        if isinstance(files, dict):
            return f"{len(files):,} of {len(files):,} files are as whole.json says"
        return f"the run is {self.subject.run_record.get('status')}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        is_numbered = step_of_checkpoint_name(checkpoint.folder) is not None
        # whole.json is written last: a checkpoint of a run that has none was cut off while it was written.
        if checkpoint.has_file(WHOLE_FILE) or (is_numbered and checkpoint.run_record):
            fault = find_checkpoint_fault(checkpoint.folder)
            if fault is not None:
                yield self.finding(f"the checkpoint is incomplete: {fault}", REMEDY)
            return
        status = checkpoint.run_record.get("status")
        # In the folder of the run itself the weights are written at its end.
        if checkpoint.has_file(RUN_FILE) and checkpoint.run_record and status != "finished":
            step, steps = checkpoint.run_record.get("step"), checkpoint.run_record.get("steps")
            yield self.finding(
                f"the run has not ended ({status}): its weights here may be incomplete",
                REMEDY,
                evidence=[f"{step} of {steps} steps are in a checkpoint"],
            )
