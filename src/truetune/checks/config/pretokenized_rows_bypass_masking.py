"""The rows are already tokenized, so the masking option has no effect on them.

## What it does
For TRL's SFT, looks at the columns of the first row. It fires for `input_ids` with `completion_only_loss` or
`assistant_only_loss` but neither labels nor the mask that the option reads, for a `completion_mask` with
`completion_only_loss` off, and for `skip_prepare_dataset` with a masking option. TRL's collator also reads
`completion_mask`, `assistant_masks` and `labels` of rows that are not prepared, so nothing is reported if the columns
are not available.

## Why it is bad
Rows that have `input_ids` skip the trainer's masking: the loss covers prompts and answers, and no error is raised.
(With `completion_only_loss: true`, 7 of 7 tokens were in the loss.)

## Example
```yaml
files:
  rows.jsonl: [{input_ids: [5, 6, 7, 8]}]
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  completion_only_loss: true
```

## Use instead
```yaml
files:
  rows.jsonl: [{input_ids: [5, 6, 7, 8], labels: [-100, -100, 7, 8]}]
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  dataset_kwargs: {skip_prepare_dataset: true}
```

## Fix safety
The loss then covers the answers only. Existing labels are kept as they are; `truetune encode` writes rows with labels.

## References
- huggingface/trl#1507, huggingface/trl#4110, huggingface/open-r1#517, huggingface/open-r1#648
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.columns_and_age_of_training_files import training_columns
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_value_unknown,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.errors import format_name_list

MASK_COLUMNS = {"completion_only_loss": "completion_mask", "assistant_only_loss": "assistant_masks"}


class PretokenizedRowsBypassMasking(ConfigRule):
    code = "CFG022"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    stacks = ("trl",)
    about = ("training.completion_only_loss", "training.assistant_only_loss")

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the columns of the rows."""
        return f"{self.describe_compared_settings()}; columns: {', '.join(sorted(training_columns(self.subject)))}"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the columns of the rows are not known.
        """
        training = self.subject.spec.training
        asked = training.skip_prepare_dataset and any(
            getattr(training, option) for option in MASK_COLUMNS
        )
        if asked and not training_columns(self.subject):
            return Unmet(
                "the columns of the rows are not available: they may hold a mask or labels of"
                " their own"
            )
        lacking = super().unmet()
        return NO_ROWS if lacking is None and not training_columns(self.subject) else lacking

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if config.stack != "trl" or training.method != "sft":
            return
        if is_value_unknown(config, "completion_only_loss"):
            return
        there = training_columns(config)
        case = Case(f"columns: {format_name_list(sorted(there))}")
        for option, mask in MASK_COLUMNS.items():
            if getattr(training, option) and not there & {"labels", mask}:
                yield from self._findings_on_ineffective_mask_option(option, mask, there, case)
        has_unread_mask = {"input_ids", "completion_mask"} <= there and "labels" not in there
        if has_unread_mask and not training.completion_only_loss:
            yield self.finding(
                "the column completion_mask is not read, because completion_only_loss is off: the loss covers every"
                " token",
                "set completion_only_loss: true",
                cases=[
                    setting_case(
                        config, training.completion_only_loss, "training.completion_only_loss"
                    ),
                    case,
                ],
            )

    def _findings_on_ineffective_mask_option(
        self, option: str, mask: str, there: frozenset[str], case: Case
    ) -> Iterator[Finding]:
        """Findings on an option that masks, over rows without labels and without its own column."""
        config, training = self.subject, self.subject.spec.training
        field = f"training.{option}"
        if "input_ids" in there:
            yield self.finding(
                f"{option} has no effect: the rows have input_ids but no {mask} or labels, so the loss covers every"
                " token, prompts included",
                f"add a {mask} or labels column to the rows, or train on text or messages instead of input_ids",
                cases=[setting_case(config, True, field), case],
            )
        elif training.skip_prepare_dataset and there:
            yield self.finding(
                f"{option} has no effect: with skip_prepare_dataset, TRL does not compute the mask",
                "add a labels column to the rows, or remove skip_prepare_dataset",
                severity="warning",
                cases=[
                    setting_case(config, True, "training.skip_prepare_dataset"),
                    setting_case(config, True, field),
                    case,
                ],
            )
