"""A limit that is meant for debugging leaves rows out.

## What it does
Counts the rows of the files that are here, and compares them with LLaMA-Factory's `max_samples`, and with the rows that
`max_steps` comes to in any stack. `max_steps` is named where it ends the run before half of the rows were seen.

## Why it is bad
LLaMA-Factory's examples set `max_samples: 1000`, and whoever copies one trains on the first thousand rows of each data
set. Unsloth's notebooks set `max_steps = 60`: 480 rows in steps of eight. Nothing in the log says how many there were.

## Example
```yaml
files:
  data/dataset_info.json: {rows: {file_name: rows.json}}
  data/rows.json: [{instruction: a, output: b}, {instruction: c, output: d}, {instruction: e, output: f}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  dataset_dir: data
  finetuning_type: lora
  max_samples: 2
```

## Use instead
```yaml
files:
  data/dataset_info.json: {rows: {file_name: rows.json}}
  data/rows.json: [{instruction: a, output: b}, {instruction: c, output: d}, {instruction: e, output: f}]
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  dataset_dir: data
  finetuning_type: lora
```

## Fix safety
The run gets longer.

## References
- unslothai/notebooks: "max_steps = 60" beside "num_train_epochs = 1, # Set this for 1 full training run"
- LLaMA-Factory 0.9.5 `data_args.py`: "For debugging purposes, truncate the number of examples for each dataset."
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.missing_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places import setting_case
from truetune.checks.config.evidence.step_counts import TrainingRows, count_rows, training_rows
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, count_measurement
from truetune.checks.rule import ConfigRule
from truetune.checks.setting_values import format_setting

# Half of the rows: whoever limits the steps on purpose mostly wants an epoch or more. At a quarter, a third of the rows
# would pass; at one, each run that ends some steps early would be named.
MAX_SHARE_SEEN = 0.5
# Steps up to which a limit looks like a trial; large runs are planned in thousands of steps over data that no one means
# to see whole. Unsloth's notebooks have 60, their longest 500.
MAX_STEPS_OF_TRIAL = 500


class RowsLeftOutByLimit(ConfigRule):
    code = "CFG036"
    severity = "warning"
    since = "0.1.0"
    about = ("max_samples", "training.max_steps")

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return None if self._counts() or self._trained_rows() else NO_ROWS

    def figure(self) -> Measurement:
        if self._counts() and self._sample_limit() is not None:
            what = f"rows beyond {format_setting(self.subject, 'max_samples')}"
            return count_measurement(what, 0, sum(self._counts().values()))
        found = self._trained_rows()
        what = f"rows beyond {format_setting(self.subject, 'training.max_steps')}"
        return count_measurement(what, 0, found.count if found is not None else 0)

    def _sample_limit(self) -> int | None:
        """LLaMA-Factory's `max_samples`; None where it is not set, or of another stack."""
        limit = self.subject.raw.get("max_samples")
        is_limit = self.subject.stack == "llama-factory" and isinstance(limit, int) and limit > 0
        return limit if is_limit else None

    def _trained_rows(self) -> TrainingRows | None:
        """The rows of the run; None where they are not known, or packing makes fewer of them."""
        training = self.subject.spec.training
        return None if training.packing or not training.max_steps else training_rows(self.subject)

    def _counts(self) -> dict[str, int]:
        """The rows of each training file that is here."""
        counts = {name: count_rows(name) for name in self.subject.spec.data}
        return {name: count for name, count in counts.items() if count is not None}

    def findings(self) -> Iterator[Finding]:
        yield from self._beyond_samples()
        yield from self._beyond_steps()

    def _beyond_steps(self) -> Iterator[Finding]:
        """`max_steps` that ends the run before half of the rows were seen."""
        training, found = self.subject.spec.training, self._trained_rows()
        steps, batch = training.max_steps, training.per_device_train_batch_size
        if found is None or not steps or not 0 < steps <= MAX_STEPS_OF_TRIAL or not batch:
            return
        a_step = batch * max(1, training.gradient_accumulation_steps or 1) * training.devices
        seen = steps * a_step
        if seen >= MAX_SHARE_SEEN * found.count:
            return
        yield self.finding(
            f"max_steps {steps:,} ends the run after {seen:,} of {found.count:,} rows"
            f" ({seen / found.count:.0%} of an epoch)",
            "remove max_steps, and set num_train_epochs (1 to 3): a limit of so few steps is for trying things",
            evidence=[f"{found.why}; a step has {a_step:,} rows"],
            cases=[setting_case(self.subject, steps, "training.max_steps")],
            count=found.count - seen,
            total=found.count,
        )

    def _beyond_samples(self) -> Iterator[Finding]:
        """`max_samples` of LLaMA-Factory that is smaller than a data set."""
        config, limit = self.subject, self._sample_limit()
        if limit is None:
            return
        over = {name: count for name, count in self._counts().items() if count > limit}
        if over:
            lost, total = sum(count - limit for count in over.values()), sum(over.values())
            yield self.finding(
                f"max_samples {limit:,} leaves out {lost:,} of {total:,} rows",
                "leave max_samples out: it is for trying things",
                evidence=[
                    f"{Path(name).name} holds {count:,} rows" for name, count in over.items()
                ],
                cases=[setting_case(config, limit, "max_samples")],
                count=lost,
                total=total,
            )
