"""The run evaluates more rows than it trains on.

## What it does
Counts the rows of the data on this machine, and from them the held-out rows of one evaluation (`val_size`, or the
evaluation's own files). From the steps between two evaluations and the rows per optimizer step, it computes how many
rows are evaluated for each row trained on. An evaluated row costs about a third of a trained one, and far more if
answers are generated (`predict_with_generate`). It fires from 1.5 evaluated rows per trained row, or from 0.5 with
generation.

## Why it is bad
A third of the time or more goes into evaluation. The run takes hours longer and the model is no better for it.

## Example
```yaml
files: {data.jsonl: {rows: 4000}}
config:
  base_model: some/model
  datasets: [{path: data.jsonl, type: chat_template}]
  adapter: lora
  lora_r: 16
  lora_alpha: 16
  lora_target_linear: true
  learning_rate: 0.0001
  num_epochs: 1
  micro_batch_size: 4
  gradient_accumulation_steps: 4
  val_set_size: 0.2
  eval_steps: 10
```

## Use instead
```yaml
files: {data.jsonl: {rows: 4000}}
config:
  base_model: some/model
  datasets: [{path: data.jsonl, type: chat_template}]
  adapter: lora
  lora_r: 16
  lora_alpha: 16
  lora_target_linear: true
  learning_rate: 0.0001
  num_epochs: 1
  micro_batch_size: 4
  gradient_accumulation_steps: 4
  val_set_size: 0.05
  eval_steps: 100
```

## Fix safety
The training stays the same. With fewer evaluations, the best checkpoint is chosen from fewer candidates.

## References
- huggingface/transformers documentation, `TrainingArguments` (eval_strategy, eval_steps)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import (
    count_rows,
    count_training_rows,
    max_steps_of_run,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

MANY, MANY_GENERATED = 1.5, 0.5
"""Evaluated rows for each trained one. An evaluated row has a forward pass, a trained one about three: at 1.5 a third
of the time goes into evaluations"""
PASSES = 3.0
"""Forward passes that a trained row costs"""
GENERATES = ("predict_with_generate", "do_bench_eval", "eval_generate", "generate_samples")
MIN_ROWS = 100
"""Held-out rows below which an evaluation takes no time"""
NOT_KNOWN = Unmet(
    "the held-out rows, or the rows between two evaluations, are not known from files here",
    "check where the data are",
)


class _EvaluatedRows(NamedTuple):
    """The rows that are evaluated for each row that is trained."""

    ratio: float
    """Evaluated rows for each trained row"""
    why: str
    """The arithmetic"""


class EvaluatedMoreThanTrained(ConfigRule):
    code = "CFG085"
    fault = Fault.EVALUATION_TAKES_TRAINING_TIME
    symptoms = ("slow-training",)
    severity = "info"
    methods = ("sft", "dpo", "orpo", "cpo", "kto", "pretrain", "reward")
    reads = ("training.eval_strategy", "training.eval_steps", "training.val_size")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the numbers of rows are not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NOT_KNOWN if _measure_evaluated_rows(self.subject) is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: the rows that are evaluated for each row that is trained."""
        evaluated = _measure_evaluated_rows(self.subject)
        assert evaluated is not None, "else the rule is not judged"
        return f"{evaluated.ratio:.2g} rows are evaluated for each that is trained"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        evaluated = _measure_evaluated_rows(config)
        generates = any(config.raw.get(name) is True for name in GENERATES)
        if evaluated is None or evaluated.ratio < (MANY_GENERATED if generates else MANY):
            return
        share = evaluated.ratio / (evaluated.ratio + PASSES)
        cost = (
            "which generates answers" if generates else f"which takes about {share:.0%} of the time"
        )
        cases = [
            setting_case(config, f"{value:g}" if isinstance(value, float) else str(value), name)
            for name, value in (
                ("training.eval_steps", training.eval_steps),
                ("training.val_size", training.val_size),
            )
            if value is not None and name in config.places
        ]
        yield self.finding(
            f"{evaluated.ratio:.1f} rows are evaluated for each row trained on, {cost}",
            "evaluate less often (a larger eval_steps, or once per epoch), or hold out only a few hundred rows",
            evidence=[evaluated.why],
            cases=cases,
        )


def _measure_evaluated_rows(config: Config) -> _EvaluatedRows | None:
    """How many rows are evaluated for each that is trained; None where the files do not say."""
    training = config.spec.training
    strategy, every = training.eval_strategy, training.eval_steps
    # Packed rows are many in one: a step trains more of them than its batch says.
    if training.packing or strategy in (None, "no"):
        return None
    share = training.val_size or 0.0
    held_out = _rows_of_one_evaluation(config)
    if strategy == "steps" and every is not None and 0 < every < 1 and 0 < share < 1:
        times, epochs = 1 / every, training.num_train_epochs or 1.0
        why = f"{times:.0f} evaluations of {share:.0%} of the rows, in {epochs:g} epochs"
        return _EvaluatedRows(times * share / ((1 - share) * epochs), why)
    between, arithmetic = _rows_between_evaluations_and_text(config)
    if held_out is None or not between or held_out < MIN_ROWS:
        return None
    return _EvaluatedRows(
        held_out / between, f"{held_out:,.0f} held-out rows are evaluated every {arithmetic}"
    )


def _rows_of_one_evaluation(config: Config) -> float | None:
    """Rows of one evaluation; None where they are not known."""
    counts = [count_rows(name) for name in config.spec.eval_data]
    if counts:
        known = [count for count in counts if count is not None]
        return float(sum(known)) if len(known) == len(counts) else None
    held = config.spec.training.val_size or 0.0
    if held >= 1:
        return held
    rows = count_training_rows(config)
    # Those that are left for training are counted: x = (1 - share) of all.
    return rows.count * held / (1 - held) if rows is not None and held else None


def _rows_between_evaluations_and_text(config: Config) -> tuple[float | None, str]:
    """The number of rows that are trained between two evaluations, and that in words."""
    training = config.spec.training
    if training.eval_strategy == "epoch":
        rows = count_training_rows(config)
        return (
            (float(rows.count), f"epoch of {rows.count:,} rows") if rows is not None else (None, "")
        )
    every, size = training.eval_steps, training.per_device_train_batch_size
    if every is None or every < 1 or not size:
        return None, ""
    run = max_steps_of_run(config)
    a_step = run.rows_a_step if run is not None else None
    a_step = a_step or size * max(1, training.gradient_accumulation_steps or 1) * training.devices
    return every * a_step, f"{every:,.0f} steps of {a_step:,} rows"
