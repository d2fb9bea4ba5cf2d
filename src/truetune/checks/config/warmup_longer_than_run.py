"""The warm-up lasts longer than the run, or takes most of it.

## What it does
Compares the warm-up with the largest number of steps that the run can make, from `max_steps`, or from the rows of local
files, batch size, accumulation and epochs.

## Why it is bad
The learning rate rises until the run ends and never reaches its set value: five steps with `warmup_steps: 500` train at
0 to 0.8 % of it. The loss is nearly flat, and "LoRA has no effect". It often happens when a setting is copied from a
long run to a small data set.

## Example
```yaml
files:
  rows.jsonl: {rows: 40}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  gradient_accumulation_steps: 4
  num_epochs: 1
  learning_rate: 0.0002
  warmup_steps: 100
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 40}
config:
  base_model: some/model
  datasets: [{path: rows.jsonl, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  gradient_accumulation_steps: 4
  num_epochs: 1
  learning_rate: 0.0002
  warmup_ratio: 0.05
```

## Fix safety
The learning rate is higher from the first steps on. A fraction of the run (`warmup_ratio`, or in transformers 5 a
`warmup_steps` below 1) fits any number of rows.

## References
- Morizeyao/GPT2-Chinese#60, axolotl-ai-cloud/axolotl#2897 (a share as the better default)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_STEPS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

# Recipes take 0.03 to 0.1. At 0.25 slow starts that are meant would be found, at 1 only runs that miss their rate.
MAX_WARMUP_SHARE = 0.5
"""Share of the run that a warm-up may take."""

USUAL_SHARES = (0.03, 0.1)
WARMUP_RANGE = "3 to 10 %"
COUNTS_STEPS_ALONE = ("torchtune", "nemo-rl", "prime-rl", "verl")
"""Stacks whose settings give the warm-up in steps; verl takes a share only where they are not set"""


class WarmupLongerThanRun(ConfigRule):
    code = "CFG004"
    fault = Fault.WARMUP_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    about = ("training.warmup_steps", "training.warmup_ratio")
    reads = ("training.lr_scheduler_type",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the warm-up is in steps and the number of steps is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        in_steps = (self.subject.spec.training.warmup_steps or 0) >= 1
        return NO_STEPS if in_steps and max_steps_of_run(self.subject) is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the most steps of the run."""
        run = max_steps_of_run(self.subject)
        return self.describe_compared_settings() + (
            f"; the run has at most {run.most:,} steps" if run is not None else ""
        )

    def findings(self) -> Iterator[Finding]:
        training = self.subject.spec.training
        if str(training.lr_scheduler_type) == "constant":
            return
        field = "training.warmup_steps" if training.warmup_steps else "training.warmup_ratio"
        wanted = training.warmup_steps or training.warmup_ratio or 0
        if wanted <= 0:
            return
        # Since transformers 5, warmup_steps below 1 is a share as well.
        if wanted < 1 or field == "training.warmup_ratio":
            yield from self._findings_on_share(wanted, field)
        else:
            yield from self._findings_on_steps(wanted, field)

    def _findings_on_share(self, share: float, field: str) -> Iterator[Finding]:
        """Findings on a warm-up that is given as a share of the run."""
        if MAX_WARMUP_SHARE < share <= 1:
            yield self.finding(
                (
                    f"the warm-up takes {share:.0%} of the run, so most steps have a learning rate below the one"
                    " that is set"
                ),
                "set it to 0.03 to 0.1 (3 to 10 % of the run)",
                severity="warning" if share < 1 else "error",
                cases=[setting_case(self.subject, share, field)],
            )

    def _findings_on_steps(self, wanted: float, field: str) -> Iterator[Finding]:
        """Findings on a warm-up that is given in steps, beside the steps that the run makes at
        most.
        """
        config, training = self.subject, self.subject.spec.training
        run = max_steps_of_run(config)
        if run is None or wanted <= run.most * MAX_WARMUP_SHARE or run.most < 2:
            return
        # The first step has rate 0: at the last one, most - 1 steps of the warm-up are made.
        reached = min(1.0, (run.most - 1) / wanted)
        rate = f" of {training.learning_rate:g}" if training.learning_rate else ""
        end = f": the learning rate ends at {reached:.1%}{rate}" if wanted >= run.most else ""
        relation = "takes most of"
        if wanted > run.most:
            relation = "is longer than"
        elif wanted == run.most:
            relation = "is as long as"
        yield self.finding(
            f"the warm-up of {wanted:,.0f} steps {relation} the run of at most {run.most:,} steps{end}",
            _advise_shorter_warmup(config.stack, run.most),
            severity="error" if reached < MAX_WARMUP_SHARE else "warning",
            evidence=[run.why],
            cases=[setting_case(config, f"{wanted:g}", field)],
        )


def _advise_shorter_warmup(stack: str, steps: int) -> str:
    """Advice on a warm-up that fits a run of so many steps."""
    if stack in COUNTS_STEPS_ALONE:
        least, most = (max(1, round(share * steps)) for share in USUAL_SHARES)
        return f"set a warm-up of {least:,} to {most:,} steps, {WARMUP_RANGE} of the run"
    return "set the warm-up to a fraction of the run, such as warmup_ratio: 0.05 (0.03 to 0.1 is usual)"
