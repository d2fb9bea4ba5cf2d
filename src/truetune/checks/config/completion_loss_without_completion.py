"""completion_only_loss is on, but the rows have no completion column.

## What it does
For TRL's SFT with `completion_only_loss: true`, looks for a `completion` column in the data.

## Why it is bad
The option uses a mask that TRL only makes for rows with prompt and completion. On `messages` or `text` it has no
effect: the loss covers the whole conversation, with questions and system prompt.

## Example
```yaml
files:
  rows.jsonl: {rows: 3}
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  completion_only_loss: true
```

## Use instead
```yaml
files:
  rows.jsonl: {rows: 3}
config:
  model_name_or_path: some/model
  dataset_name: rows.jsonl
  max_length: 2048
  assistant_only_loss: true
```

## Fix safety
The loss then covers the answers only. `assistant_only_loss` needs a chat template with `{% generation %}` tags; TRL
adds them to the templates of model families that it knows.

## References
- huggingface/trl#3728, huggingface/trl#4879, TRL's documentation "Train on completion only"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.columns_and_age_of_training_files import training_columns
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.errors import format_name_list
from truetune.settings.config import Config

WHOLE_ROW_COLUMNS = ("messages", "conversations", "text")

ASSISTANT_LOSS_SINCE = "0.19.0"
"""The first release of TRL that has `assistant_only_loss` (`trl/trainer/sft_config.py` of 0.18.2 and 0.19.1)"""


class CompletionLossWithoutCompletion(ConfigRule):
    code = "CFG023"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    stacks = ("trl",)
    about = ("training.completion_only_loss",)
    reads = ("training.assistant_only_loss",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the columns of the rows are not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if training_columns(self.subject) else NO_ROWS

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the columns of the rows."""
        return f"{self.describe_compared_settings()}; columns: {', '.join(sorted(training_columns(self.subject)))}"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if config.stack != "trl" or training.method != "sft" or not training.completion_only_loss:
            return
        if training.assistant_only_loss:
            return
        there = training_columns(config)
        whole = [name for name in WHOLE_ROW_COLUMNS if name in there]
        if whole and "completion" not in there and "input_ids" not in there:
            yield self.finding(
                f"completion_only_loss has no effect: the rows have {whole[0]} and no completion, so the loss covers"
                " every token, prompts included",
                _replacement_setting(config),
                cases=[
                    setting_case(config, True, "training.completion_only_loss"),
                    Case(f"columns: {format_name_list(sorted(there))}"),
                ],
            )


def _replacement_setting(config: Config) -> str:
    """What to set in its place, by what the release that is asked for knows."""
    split = "split the rows into prompt and completion"
    if config.pins.is_release_surely_before("trl", ASSISTANT_LOSS_SINCE):
        return f"{split} columns, or install TRL 0.19 or later and set assistant_only_loss: true"
    return f"set assistant_only_loss: true instead, or {split} columns"
