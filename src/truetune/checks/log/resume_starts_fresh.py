"""The run was resumed without its weights, its schedule or its step count.

## What it does
Looks for five signs of a restart.

- Epoch, learning rate and loss go back to where they started: a job that was preempted or requeued resumed nothing. The
  line that trains without `resume_from_checkpoint` is named.
- The learning rate jumps and repeats its own start, or drops to 0 and warms up again over four records or more,
  although it had not reached its end (so schedules that restart are not reported).
- The loss jumps by eight times its noise, up to its first level, and falls again.
- A schedule that had reached its end jumps up at the very record at which the loss does: a second training with the
  same step count.
- A second process wrote steps from the first one on, although the one before it had got further. That is info, unless
  the log names a checkpoint to resume from.

## Why it is bad
A resume that finds no `optimizer.pt` or `scheduler.pt` does not report it: the warm-up runs again on trained weights.
If the weights don't match, the step count continues and a fresh model is trained for the rest of the run.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.2, steps: 80, noise: 0.02}
  learning_rate: {
      values: [0, 1.0e-4, 9.0e-5, 8.0e-5, 7.0e-5, 6.0e-5, 5.0e-5, 4.5e-5, 0, 1.0e-4, 9.0e-5, 8.0e-5,
      7.0e-5, 6.0e-5, 5.0e-5, 4.5e-5, 4.0e-5], steps: 17}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.2, steps: 80, noise: 0.02}
  learning_rate: {
      values: [0, 1.0e-4, 9.0e-5, 8.0e-5, 7.0e-5, 6.0e-5, 5.0e-5, 4.0e-5, 3.0e-5, 2.0e-5, 1.0e-5], steps:
      17}
```

## Fix safety
Resuming needs a checkpoint with optimizer.pt, scheduler.pt and rng_state.pth, and the same batch size and number of
processes. Saving more often takes disk space.

## References
- huggingface/transformers#24274, huggingface/transformers#29607, huggingface/peft#574
- vllm-project/speculators#900, lightly-ai/lightly-train#301 (a second warm-up)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.detect_resumes_without_state import MIN_LOSSES, MIN_RATES, Restart, find_restarts
from truetune.logs.facts_in_files_beside_log import NOTHING_RESUMED

SAYS = {
    "schedule": "the learning rate schedule (and the optimizer with it) restarted",
    "weights": "the weights restarted while the steps continued",
    "run": "the run restarted",
    "everything": "the training started over from the beginning: nothing was resumed",
}
SHOWN_RESTARTS = 6
"""Restarts that a finding shows as its cases; a job that restarts each night has many alike"""


class ResumeStartsFresh(LogRule):
    code = "LOG018"
    fault = Fault.RESUME_LOSES_STATE
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs = ("loss",)

    def unmet(self) -> Unmet | None:
        """Also unmet where a log of one part has too few losses and rates to show a restart."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        enough = (
            self.count_finite_records("loss") >= MIN_LOSSES
            or self.count_finite_records("learning_rate") >= MIN_RATES
        )
        return (
            None
            if enough or len(self.subject.parts) > 1
            else explain_too_short_curve(self.count_finite_records("loss"), MIN_LOSSES, "loss")
        )

    def measurement_if_clean(self) -> str:
        """The number of losses and rates without a restart, and the parts of the log."""
        parts = len(self.subject.parts)
        return (
            f"no seam in {self.count_finite_records('loss'):,} losses and"
            f" {self.count_finite_records('learning_rate'):,}"
            " learning rates, written " + (f"in {parts:,} parts" if parts > 1 else "in one part")
        )

    def findings(self) -> Iterator[Finding]:
        seams = find_restarts(self.subject)
        if not seams:
            return
        seam = seams[0]
        if seam.lost == "everything":
            yield self._finding_on_repeated_starts(
                [one for one in seams if one.lost == "everything"]
            )
            return
        yield self._finding_on_restarts_that_lost_state(seams)

    def _finding_on_restarts_that_lost_state(self, seams: Sequence[Restart]) -> Finding:
        """The finding on restarts that lost a part of the run; a note where nothing says that it was resumed."""
        log, seam = self.subject, seams[0]
        resumed = seam.lost != "run" or bool(log.facts.get("resume_from_checkpoint"))
        saved = [step for step in log.checkpoints if step < seam.step]
        return self.finding(
            f"at {log.unit_of_steps} {seam.step:,.0f} {SAYS[seam.lost]}",
            (
                "resume from a checkpoint that contains the weights, optimizer.pt and scheduler.pt, with the same"
                " number of processes"
                if resumed
                else (
                    "pass resume_from_checkpoint=True, or give a run that is meant to be new another output_dir"
                )
            ),
            severity="error" if resumed else "info",
            evidence=(
                *(s.text for s in seams[:3]),
                *((f"the checkpoint before it: checkpoint-{saved[-1]}",) if saved else ()),
            ),
            count=len(seams),
            figure=draw_curves(
                "loss" if seam.lost == "weights" else "learning rate",
                (
                    {"loss": log.curve("loss")}
                    if seam.lost == "weights"
                    else {"learning_rate": log.curve("learning_rate")}
                ),
                {"restarts": seam.step},
            ),
        )

    def _finding_on_repeated_starts(self, seams: list[Restart]) -> Finding:
        """The finding that launches of one job each began from the base: what the others learned is
        lost.
        """
        log = self.subject
        places = ", ".join(f"{one.step:,.0f}" for one in seams[:SHOWN_RESTARTS])
        missing = next(log.files_beside.settings_named(NOTHING_RESUMED), None)
        remedy = "resume if there is a checkpoint in the output folder"
        if missing is not None:
            remedy += f", in {missing.place}"
        return self.finding(
            f"at {log.unit_of_steps} {places} {SAYS['everything']}",
            f"{remedy}: trainer.train(resume_from_checkpoint=get_last_checkpoint(output_dir)), which is None at the"
            " first launch (on a command line: --resume_from_checkpoint; in Lightning: fit(ckpt_path='last')); put"
            " output_dir on a disk that survives the job, and save more often than jobs are ended",
            severity="error",
            evidence=tuple(one.text for one in seams[:SHOWN_RESTARTS]),
            cases=()
            if missing is None
            else (Case(missing.text, file=missing.file, line=missing.line),),
            count=len(seams),
            figure=draw_curves("loss", {"loss": log.curve("loss")}, {"restarts": seams[0].step}),
        )
