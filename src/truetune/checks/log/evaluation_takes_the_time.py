"""A run spends much of its time on evaluating, saving or sampling instead of training.

## What it does
Adds up the seconds that a log gives for evaluations (`eval_runtime`), or that hand-written loops print or show by the
clock of their lines (`validation took 312 s`, `saved checkpoint in 45 s`). It compares them with the time of the whole
run: `train_runtime`, the progress bar of the training, or the times of records. It reports a third of the time as info,
and warns from half. It also names the settings beside the log that cause it.

## Why it is bad
The GPU trains only for the rest of the time. A run that evaluates every ten steps can take three or four times as long,
and learns no more.

## Example
```yaml
output: |
  {'loss': 1.5334, 'grad_norm': 0.4129, 'learning_rate': 2.5e-05, 'epoch': 0.02}
  {'eval_loss': 1.4865, 'eval_runtime': 306.8321, 'eval_samples_per_second': 15.644, 'epoch': 0.04}
   2%|▏         | 10/20 [06:36<06:36, 39.65s/it]
  {'loss': 1.4334, 'grad_norm': 0.4129, 'learning_rate': 4.5e-05, 'epoch': 0.06}
  {'eval_loss': 1.3865, 'eval_runtime': 307.8321, 'eval_samples_per_second': 15.644, 'epoch': 0.08}
   100%|██████████| 20/20 [13:13<00:00, 39.69s/it]
  {'train_runtime': 793.0, 'train_samples_per_second': 1.61, 'train_loss': 1.48, 'epoch': 0.08}
```

## Use instead
```yaml
output: |
  {'loss': 1.5334, 'grad_norm': 0.4129, 'learning_rate': 2.5e-05, 'epoch': 0.02}
  {'eval_loss': 1.4865, 'eval_runtime': 36.8321, 'eval_samples_per_second': 15.644, 'epoch': 0.4}
   21%|██▏       | 100/200 [15:36<15:36, 9.35s/it]
  {'loss': 1.4334, 'grad_norm': 0.4129, 'learning_rate': 4.5e-05, 'epoch': 0.6}
  {'eval_loss': 1.3865, 'eval_runtime': 37.8321, 'eval_samples_per_second': 15.644, 'epoch': 0.8}
   100%|██████████| 200/200 [31:13<00:00, 9.36s/it]
  {'train_runtime': 1873.0, 'train_samples_per_second': 6.8, 'train_loss': 1.48, 'epoch': 0.8}
```

## Fix safety
The trained weights stay the same. With fewer evaluations (`eval_steps`), the best checkpoint is found less exactly;
with fewer held-out rows, each evaluation is noisier.

## References
- huggingface/transformers documentation, `TrainingArguments` (eval_strategy, eval_steps, save_steps,
predict_with_generate)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import FilesBeside, SettingBeside
from truetune.logs.share_of_time_beside_training import TimeShares, measure_time_shares

MUCH, MOST = 1 / 3, 0.5
"""Shares of the time. Chosen, not measured: a tenth is usual, and a third of the time is worth a word"""
MIN_TOTAL_S = 600.0
"""A shorter run is a trial, which evaluates as often as it likes"""
MIN_TIMES = 2
"""One evaluation at the end says nothing of how often there are any"""
GOOD_SHARE = 0.1
"""Share of the time that the interval of the remedy would leave to them"""
SETTINGS_OF_KIND = {
    "evaluation": ("eval_steps", "eval_strategy", "val_size", "predict_with_generate"),
    "saving": ("save_steps", "save_strategy"),
    "sampling": ("eval_steps", "predict_with_generate"),
}


class EvaluationTakesTheTime(LogRule):
    code = "LOG085"
    fault = Fault.EVALUATION_TAKES_TRAINING_TIME
    symptoms = ("slow-training",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where the log does not say how long evaluations and the whole run took."""
        if measure_time_shares(self.subject) is not None:
            return None
        return Unmet("the log does not say how long evaluations and the whole run took")

    def measurement_if_clean(self) -> str:
        """The share of the run's time that evaluations, saving or sampling take."""
        shares = measure_time_shares(self.subject)
        assert shares is not None, "else the rule is not judged"
        return f"{' and '.join(shares.kinds)}: {shares.share:.0%} of the time"

    def findings(self) -> Iterator[Finding]:
        shares = measure_time_shares(self.subject)
        if shares is None or shares.share < MUCH:
            return
        if shares.total < MIN_TOTAL_S or shares.times < MIN_TIMES:
            return
        what = " and ".join(shares.kinds)
        each = shares.aside / shares.times
        settings = _frequency_and_size_settings(self.subject.files_beside, shares.kinds)
        yield self.finding(
            f"{what} takes {shares.share:.0%} of the time: {_format_duration(shares.aside)} of"
            f" {_format_duration(shares.total)} ({shares.times:,} times {each:.0f} s)",
            _remedy(shares, settings),
            severity="warning" if shares.share >= MOST else "info",
            evidence=_evidence(shares),
            cases=[Case(one.text, file=one.file, line=one.line or None) for one in settings],
        )


def _evidence(shares: TimeShares) -> list[str]:
    """Evidence: what the seconds are taken from, and how many training itself takes."""
    told = [f"the total time comes from {shares.source}"]
    if shares.step_seconds is not None:
        told.append(
            f"a step takes {shares.step_seconds:.1f} s without this, {shares.total / shares.steps:.1f} s with it"
        )
    return told


def _remedy(shares: TimeShares, settings: list[SettingBeside]) -> str:
    """The remedy: how often would be enough, as an edit where the setting is known."""
    interval = _evaluation_interval_for_tenth_of_time(shares)
    often = f" every {interval:,} steps" if interval else " less often"
    named = next(
        (one for one in settings if one.name in ("eval_steps", "save_steps") and one.line), None
    )
    where = f" ({named.text.partition('=')[0]} in {named.place})" if named is not None else ""
    verb = {"evaluation": "evaluate", "saving": "save", "sampling": "sample"}[shares.kinds[0]]
    more = ""
    if shares.kinds[0] == "evaluation":
        more = "; use a few hundred held-out rows, and do not generate answers in it (predict_with_generate)"
    share = ", which takes 10 % of the time" if interval else ""
    return f"{verb}{often}{share}{where}{more}"


def _evaluation_interval_for_tenth_of_time(shares: TimeShares) -> int | None:
    """Steps between two evaluations at which they take a tenth of the time, rounded up to two
    digits.
    """
    if not shares.step_seconds or shares.step_seconds <= 0:
        return None
    steps = shares.aside / shares.times * (1 - GOOD_SHARE) / GOOD_SHARE / shares.step_seconds
    unit: int = 10 ** max(0, math.floor(math.log10(max(steps, 1))) - 1)
    return math.ceil(steps / unit) * unit


def _frequency_and_size_settings(
    beside: FilesBeside, kinds: tuple[str, ...]
) -> list[SettingBeside]:
    """The settings beside the log that decide how often, and on how much, one evaluates, saves or
    samples.
    """
    names = dict.fromkeys(name for kind in kinds for name in SETTINGS_OF_KIND[kind])
    settings_beside = [one for name in names for one in beside.settings_named(name) if one.line]
    # `eval_steps: 10` sets how often and that it is by steps: one line, once.
    return list({(one.file, one.line): one for one in reversed(settings_beside)}.values())[::-1]


def _format_duration(seconds: float) -> str:
    """A duration in words: `1.7 h`, `23 min`"""
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"
