"""A checkpoint to go on from lacks the state of the optimizer.

## What it does
Looks at `checkpoint-N` folders with a `trainer_state.json`: optimizer, scheduler and random state must stand beside
it (or the shards of DeepSpeed or FSDP). It is a warning for the last checkpoint of a run that had not ended, else a
note.

## Why it is bad
Resuming restores the step count and the weights, and starts the optimizer or the learning rate anew: the loss jumps,
the warm-up comes again.

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
The state can't be made up afterwards. Go on from a checkpoint that has it, or start a new run with a short warm-up.
Save with `save_only_model=False` (the default).

## References
- huggingface/transformers#24274, huggingface/transformers#29607, huggingface/peft#574, modelscope/ms-swift#3396
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

STATE = {
    "the optimizer": ("optimizer*", "global_step*"),
    "the scheduler": ("scheduler*", "global_step*"),
    "the random state": ("rng_state*",),
}
NAME = re.compile(r"checkpoint-(\d{1,12})")


class ResumeStateMissing(CheckpointRule):
    code = "CKP025"
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
        numbered = NAME.fullmatch(self.subject.folder.resolve().name)
        return (
            None
            if numbered or len(self._lost()) < len(STATE)
            else Unmet("it is no folder checkpoint-N")
        )

    def figure(self) -> str:
        return f"{', '.join(STATE)} of step {self.subject.trainer_state['global_step']:,} are there"

    def _lost(self) -> list[str]:
        """What is not there."""
        folder = self.subject.folder
        return [
            what
            for what, globs in STATE.items()
            if not any(any(folder.glob(glob)) for glob in globs)
        ]

    def findings(self) -> Iterator[Finding]:
        folder, state = self.subject.folder, self.subject.trainer_state
        step, last = state.get("global_step"), state.get("max_steps")
        numbered = NAME.fullmatch(folder.resolve().name)
        lost = self._lost()
        if not lost or type(step) is not int or (not numbered and len(lost) == len(STATE)):
            return
        ended = type(last) is int and step >= last > 0
        yield self.finding(
            f"{' and '.join(lost)} of step {step:,} {'is' if len(lost) == 1 else 'are'} not there:"
            f" resuming starts {'it' if len(lost) == 1 else 'them'} anew",
            "resume from a checkpoint that has optimizer.pt, scheduler.pt and rng_state.pth"
            " (save_only_model=False)",
            severity=(
                "info"
                if ended or _later(folder, step) or lost == ["the random state"]
                else "warning"
            ),
            evidence=[f"the run was to have {last:,} steps"] if type(last) is int else (),
        )


def _later(folder: Path, step: int) -> bool:
    """Is there a later checkpoint of the run?"""
    names = (NAME.fullmatch(path.name) for path in folder.resolve().parent.glob("checkpoint-*"))
    return any(name is not None and int(name[1]) > step for name in names)
