"""The run ended after so few optimizer steps that it learned almost nothing.

## What it does
Counts the optimizer steps of a run that has ended: by its records, by what the trainer prints when it starts, or by its
speed and its time. It warns below 10 steps, and reports as info below 30, if all rows were seen at least once and the
loss hardly fell: by less than 10 %, or by less than 1.5 % from the 0.693 at which preference losses start.

A test run that `max_steps` ends within the first epoch is not reported. It is info if the trainer printed how many rows
there are and at most 60 steps saw less than 10 % of them. It is a warning if at most 100 steps saw less than 2 %, and
the last lines of the output show that the weights were saved, pushed or converted. It is also a warning if a run ended
by itself before half of the planned steps: early stopping ended it.

## Why it is bad
The optimizer moves each weight by about the learning rate at each step. With 52 rows and a batch of 64, an epoch is one
step: after three of them the loss is a little lower in each record, and the model answers as before.

## Example
```yaml
curve:
  loss: {from: 1.73, to: 1.66, steps: 3}
  epoch: {from: 1, to: 3, steps: 3}
state: {max_steps: 3}
```

## Use instead
```yaml
curve:
  loss: {from: 1.73, to: 0.9, steps: 78}
  epoch: {from: 0.04, to: 3, steps: 78}
state: {max_steps: 78}
```

## Fix safety
Smaller batches (`gradient_accumulation_steps`, `per_device_train_batch_size`) take more time per row. With many epochs
over few rows (`num_train_epochs`) the model memorises them: watch an evaluation loss.

## References
- Zhou et al., LIMA (arXiv:2305.11206): 1,000 rows, 15 epochs, 470 steps; `max_steps=60` of Unsloth's notebooks
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.count_optimizer_steps import FEW, SCARCE, OptimizerSteps, steps_of_ended_log
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import RunLog

WHOLE = 0.9
"""Epochs from which a run saw its rows, as far as the last batch of an epoch is left out or rounded"""
MAX_TRIAL_STEPS = 60
"""The notebooks that try a method make 30 to 60 (see `count_optimizer_steps.FEW`)"""
TRIAL_SHARE = 0.1
"""Of the rows, below which most of the data was never seen; a run over a part of a large set takes more steps"""
MAX_LIMITED_STEPS = 100
"""Steps that are left over from a trial where hardly any row was seen and the weights are used. Chosen: tutorials set
`max_steps` to 30, 60 or 100, and a run that is meant makes more"""
HARDLY_SHARE = 0.02
"""Of the rows, below which a run whose weights are used left the data out"""
WEIGHTS_USED = re.compile(
    r"\b(?:sav(?:ed|ing)|push(?:ed|ing)|upload(?:ed|ing)|merg(?:ed|ing)|export(?:ed|ing)|convert(?:ed|ing))\b"
    r".{0,60}\b(?:adapters?|models?|weights|lora|gguf|checkpoints?)\b",
    re.I,
)
"""A line that says what becomes of the weights"""
FALL = 0.1
"""Share by which a loss falls that learned something; the losses of single batches differ by as much"""
FALL_OF_PAIRS = 0.015
"""The same of preference losses, whose first value is ln 2 and whose noise is far smaller"""
NEAR_LN2 = 0.02
"""Share by which the first loss of a preference run is off ln 2; language losses seldom are that low at first"""

BYTES_A_TOKEN = 3.0
"""Of the texts of a chat with its markers; English text alone has about four"""
MIN_JOINED = 2
"""Rows of a packed sequence, from which packing is a reason for few steps"""


class PackedRun(NamedTuple):
    """What packing makes of the rows of a run."""

    rows: int
    tokens: float
    """By the bytes of their texts"""
    limit: int
    sequences: int
    a_step: int | None
    """Packed sequences of an optimizer step; None where the settings do not say it"""


class RunEndedAfterFewSteps(LogRule):
    code = "LOG038"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    severity = "warning"
    kinds = ("language", "preference")
    needs = ("loss",)

    def unmet(self) -> Unmet | None:
        """Also unmet where other rules are about it, or the number of steps is not known."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if any(_is_curve_all_zero(self.subject, name) for name in ("grad_norm", "rewards/margins")):
            return Unmet("gradients or margins are all 0, which other rules are about")
        if steps_of_ended_log(self.subject) is None:
            return Unmet(
                "the log does not show how many steps the run made in all",
                "name the log of a run that has ended, with its steps",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The number of optimizer steps that the run made."""
        optimizer_steps = steps_of_ended_log(self.subject)
        assert optimizer_steps is not None, "else the rule is not judged"
        return f"{optimizer_steps.most:,} optimizer steps in all"

    def findings(self) -> Iterator[Finding]:
        log, optimizer_steps = self.subject, steps_of_ended_log(self.subject)
        if optimizer_steps is None or log.kind not in self.kinds or self.unmet() is not None:
            return
        if optimizer_steps.planned is not None:
            yield self._finding_on_early_end(optimizer_steps, optimizer_steps.planned)
            return
        if log.epochs_at_end < WHOLE:
            yield from self._findings_on_trial_length(optimizer_steps)
            return
        if optimizer_steps.most >= SCARCE or self._has_learned():
            return
        loss = log.curve("loss").finite()
        plural = "s" * (optimizer_steps.most != 1)
        packed = _measure_packed_run(log)
        yield self.finding(
            f"the run made only {optimizer_steps.most:,} optimizer step{plural} in all, too few to learn from: its"
            f" loss went from {loss.value[0]:.4g} to {loss.value[-1]:.4g}",
            _remedy(optimizer_steps, packed),
            severity="warning" if optimizer_steps.most < FEW else "info",
            evidence=(optimizer_steps.why, *_evidence_of_packing(packed)),
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _finding_on_early_end(self, made: OptimizerSteps, planned: int) -> Finding:
        """The finding that a run which ended by itself made less than half of the steps that were
        planned.
        """
        evaluated = self.subject.curve("eval_loss").finite().step.size
        return self.finding(
            f"the run ended by itself after {made.most:,} of {planned:,} planned steps, at epoch {made.epochs:.2g}",
            "if an EarlyStoppingCallback ended it, set early_stopping_patience to 3 or more, and evaluate once or"
            " twice per epoch (eval_steps): in the first steps the loss moves less than its noise",
            severity="warning",
            evidence=(
                made.why,
                f"{evaluated:,} evaluations" if evaluated else "no evaluation is logged",
            ),
        )

    def _findings_on_trial_length(self, made: OptimizerSteps) -> Iterator[Finding]:
        """The finding that a run of a trial's length ended within the first epoch: settings of a
        notebook that only shows how.
        """
        if made.rows is None or made.rows_a_step is None:
            return
        seen = made.most * made.rows_a_step
        are_weights_used = (
            made.most <= MAX_LIMITED_STEPS
            and seen < HARDLY_SHARE * made.rows
            and _are_weights_saved_at_output_end(self.subject)
        )
        is_trial = made.most <= MAX_TRIAL_STEPS and seen < TRIAL_SHARE * made.rows
        if not (is_trial or are_weights_used):
            return
        yield self.finding(
            f"the run ended after {made.most:,} optimizer steps: it saw only {seen:,} of {made.rows:,}"
            f" rows, {seen / made.rows:.1%}",
            "if it was not a test run, remove max_steps and set num_train_epochs (1 to 3)",
            severity="warning" if are_weights_used else "info",
            evidence=(made.why,),
        )

    def _has_learned(self) -> bool:
        """Did the loss fall by more than batches differ? True also where there is too little to tell."""
        loss = self.subject.curve("loss").finite()
        if not loss or loss.value[0] <= 0:
            return True
        first, last = float(loss.value[0]), float(loss.value[-1])
        is_of_pairs = abs(first / math.log(2) - 1) < NEAR_LN2
        return first - last > (FALL_OF_PAIRS if is_of_pairs else FALL) * first


def _are_weights_saved_at_output_end(log: RunLog) -> bool:
    """Do the last lines of the output say that the weights were saved, pushed or converted?"""
    lines = log.output.last_lines if log.output is not None else ()
    return any(WEIGHTS_USED.search(line) for line in lines)


def _is_curve_all_zero(log: RunLog, name: str) -> bool:
    """Was the curve logged, and is it 0 each time?"""
    curve = log.curve(name).finite()
    return bool(curve) and not curve.value.any()


def _measure_packed_run(log: RunLog) -> PackedRun | None:
    """What packing makes of the rows that settings beside a log name; None without packing, or of several settings."""
    rows = log.files_beside.rows
    if len(rows) != 1 or not rows[0].is_packed or not rows[0].limit or not rows[0].text_bytes:
        return None
    tokens = rows[0].text_bytes / BYTES_A_TOKEN
    sequences = math.ceil(tokens / rows[0].limit)
    # Rows that fill a sequence each are packed, and yet their number is the reason.
    if sequences > rows[0].rows / MIN_JOINED:
        return None
    return PackedRun(
        rows[0].rows, tokens, rows[0].limit, sequences, _packed_sequences_per_step(log)
    )


def _packed_sequences_per_step(log: RunLog) -> int | None:
    """The packed sequences of an optimizer step, by the settings beside the log and the processes
    that it names.
    """
    beside = log.files_beside
    batch = beside.setting("per_device_train_batch_size")
    accumulation = beside.setting("gradient_accumulation_steps")
    if batch is None or not isinstance(batch.value, int):
        return None
    times = accumulation.value if accumulation is not None else 1
    processes = (log.output.settings.world if log.output is not None else None) or 1
    return batch.value * times * processes if isinstance(times, int) else None


def _evidence_of_packing(packed: PackedRun | None) -> Iterator[str]:
    """Evidence: the arithmetic of rows, packed sequences and steps."""
    if packed is None:
        return
    a_step = f", and a step uses {packed.a_step:,} of them" if packed.a_step else ""
    yield (
        f"packing joins {packed.rows:,} rows (about {round(packed.tokens, -3):,.0f} tokens, estimated from their text)"
        f" into about {packed.sequences:,} sequences of {packed.limit:,} tokens{a_step}"
    )


def _describe_packing_sizes(made: OptimizerSteps, packed: PackedRun | None) -> str:
    """How long rows are beside a packed sequence, or how many one holds; empty where the log shows no packing."""
    if packed is not None:
        return f"rows have about {packed.tokens / packed.rows:,.0f} tokens each"
    if made.packed_rows is not None and made.rows:
        return f"each sequence contains about {made.packed_rows / made.rows:,.0f} rows"
    return ""


def _remedy(made: OptimizerSteps, packed: PackedRun | None) -> str:
    """The remedy: what gives more steps, the cheapest first."""
    sizes = _describe_packing_sizes(made, packed)
    if sizes:
        return (
            "set gradient_accumulation_steps and per_device_train_batch_size to 1; turn off packing (packing,"
            f" sample_packing), or pack into shorter sequences (max_length, sequence_len: {sizes}); or train for more"
            " epochs"
        )
    if made.rows_a_step is not None and made.rows_a_step > 1:
        return (
            "lower gradient_accumulation_steps or per_device_train_batch_size (a step uses"
            f" {made.rows_a_step:,} rows), or train for more epochs"
        )
    return "lower gradient_accumulation_steps or per_device_train_batch_size, train for more epochs, or add rows"
