"""A checkpoint to resume from lacks the state of the optimizer, scheduler or random numbers.

## What it does
Reads `checkpoint-N` folders with a `trainer_state.json`: optimizer, scheduler and random state must be beside it (or
the shards of DeepSpeed or FSDP). It is a warning for the last checkpoint of a run that had not ended, and otherwise
info. It is a warning as well if trainer_state.json is of another step than the folder's name says, or if DeepSpeed's
file `latest` is.

## Why it is bad
Resuming restores the step count and the weights, but restarts the optimizer or the learning rate: the loss jumps, and
the warm-up runs again.

## Example
```yaml
llama: 2
trainer_state: {global_step: 10, max_steps: 100}
files: {scheduler.pt: "", rng_state.pth: ""}
```

## Use instead
```yaml
llama: 2
trainer_state: {global_step: 10, max_steps: 100}
files: {optimizer.pt: "", scheduler.pt: "", rng_state.pth: ""}
```

## Fix safety
The state can't be recovered. Resume from a checkpoint that has it, or start a new run with a short warm-up. Save with
`save_only_model=False` (the default), which takes about three times the space.

## References
- huggingface/transformers#24274, huggingface/transformers#29607, huggingface/peft#574, modelscope/ms-swift#3396
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

FILES_OF_STATE = {
    "the optimizer": ("optimizer*", "global_step*"),
    "the scheduler": ("scheduler*", "global_step*"),
    "the random state": ("rng_state*",),
}
TAG = re.compile(r"global_step\d{1,12}")
MAX_TAG_BYTES = 100
"""Of the file `latest` of DeepSpeed, which holds the name of one folder"""
CHECKPOINT_NAME = re.compile(r"checkpoint-(\d{1,12})")


class ResumeStateMissing(CheckpointRule):
    code = "CKP025"
    fault = Fault.RESUME_LOSES_STATE
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    opens = False

    def unmet(self) -> Unmet | None:
        if type(self.subject.trainer_state.get("global_step")) is not int:
            return Unmet(
                "it is no checkpoint to resume from: there is no trainer_state.json with a step"
            )
        if self._is_numbered_checkpoint() or len(self._missing_state_files()) < len(FILES_OF_STATE):
            return None
        return Unmet("it is no folder checkpoint-N")

    def measurement_if_clean(self) -> str:
        """The files of the training state that are there, and their step."""
        step = self.subject.trainer_state["global_step"]
        return f"{', '.join(FILES_OF_STATE)} of step {step:,} are saved"

    def _is_numbered_checkpoint(self) -> bool:
        """Is the folder a numbered checkpoint of a run, and not the model that was saved at its
        end?
        """
        return CHECKPOINT_NAME.fullmatch(self.subject.folder.resolve().name) is not None

    def _missing_state_files(self) -> list[str]:
        """The parts of the training state (optimizer, scheduler, random state) that are not there."""
        folder = self.subject.folder
        return [
            what
            for what, globs in FILES_OF_STATE.items()
            if not any(any(folder.glob(glob)) for glob in globs)
        ]

    def findings(self) -> Iterator[Finding]:
        folder, state = self.subject.folder, self.subject.trainer_state
        step, last = state.get("global_step"), state.get("max_steps")
        missing = self._missing_state_files()
        yield from self._finding_on_state_of_another_step()
        yield from self._finding_on_older_deepspeed_tag()
        if not missing or type(step) is not int:
            return
        # A final folder holds trainer_state.json and none of the rest, as it should.
        if len(missing) == len(FILES_OF_STATE) and not self._is_numbered_checkpoint():
            return
        has_ended = type(last) is int and step >= last > 0
        # Nobody resumes from a run that ended or continued; without the random state only the order of rows differs.
        is_harmless = (
            has_ended or _has_later_checkpoint(folder, step) or missing == ["the random state"]
        )
        is_one = len(missing) == 1
        yield self.finding(
            f"{' and '.join(missing)} of step {step:,} {'is' if is_one else 'are'} missing:"
            f" resuming restarts {'it' if is_one else 'them'}",
            "resume from a checkpoint that has optimizer.pt, scheduler.pt and rng_state.pth, and save with"
            " save_only_model=False",
            severity="info" if is_harmless else "warning",
            evidence=[f"the run was planned with {last:,} steps"] if type(last) is int else (),
        )

    def _finding_on_state_of_another_step(self) -> Iterator[Finding]:
        """The finding on a trainer_state.json whose step is not that of the folder's name."""
        step = self.subject.trainer_state.get("global_step")
        name = self.subject.folder.resolve().name
        match = CHECKPOINT_NAME.fullmatch(name)
        if match is None or type(step) is not int or int(match[1]) == step:
            return
        yield self.finding(
            f"{name} has the trainer_state.json of step {step:,}: a resumed run skips the rows of {step:,} steps, and"
            f" counts on from there, with the weights of step {int(match[1]):,}",
            f"copy trainer_state.json of step {int(match[1]):,} into {name}, or resume from a folder whose files are of"
            " one step",
        )

    def _finding_on_older_deepspeed_tag(self) -> Iterator[Finding]:
        """The finding on a file `latest` that names another step's shards than those of the folder."""
        folder = self.subject.folder
        match = CHECKPOINT_NAME.fullmatch(folder.resolve().name)
        path = folder / "latest"
        # Both must be there: the steps that DeepSpeed counts may differ from the trainer's.
        if match is None or not path.is_file() or not (folder / f"global_step{match[1]}").is_dir():
            return
        with path.open("rb") as file:
            tag = file.read(MAX_TAG_BYTES).decode("utf-8", "replace").strip()
        if TAG.fullmatch(tag) is None or tag == f"global_step{match[1]}":
            return
        yield self.finding(
            f"the file latest names {tag}, but the folder is {folder.resolve().name} and holds global_step{match[1]}"
            f" too: resuming and zero_to_fp32.py take the weights and the optimizer of {tag}",
            f"write global_step{match[1]} into the file latest, or name it: zero_to_fp32.py -t global_step{match[1]}",
        )


def _has_later_checkpoint(folder: Path, step: int) -> bool:
    """Is there a later checkpoint of the run beside it?"""
    siblings = folder.resolve().parent.glob("checkpoint-*")
    matches = (CHECKPOINT_NAME.fullmatch(path.name) for path in siblings)
    return any(match is not None and int(match[1]) > step for match in matches)
