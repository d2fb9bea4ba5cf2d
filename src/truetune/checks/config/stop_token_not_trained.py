"""Axolotl's settings leave the stop token of the answers out of the loss.

## What it does
Finds data sets of type chat_template with `train_on_eos: none` (unless `train_on_eot` replaces it). It also finds
templates that end turns with another token than the tokenizer's EOS if `eot_tokens` does not name that token: by the
tokenizer's template, or by the name of the family (Gemma).

## Why it is bad
Axolotl trains on the tokens in `eot_tokens`, by default the EOS. The model never learns to write another turn-end
token: it answers well, and then continues without end. The loss looks healthy.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  chat_template: gemma3
  sequence_len: 2048
  micro_batch_size: 2
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  chat_template: gemma3
  eot_tokens: ["<end_of_turn>"]
  sequence_len: 2048
  micro_batch_size: 2
```

## Fix safety
Safe: the model then learns where an answer ends.

## References
- axolotl-ai-cloud/axolotl#3754, axolotl-ai-cloud/axolotl#3756, axolotl-ai-cloud/axolotl#1847
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_TOKENIZER
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.template_marks_before_questions import (
    MARKERS,
    answer_end_and_eos,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule

TURN_ENDS = {
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "gemma3n": "<end_of_turn>",
    "gemma4": "<turn|>",
    "gemma4_unified": "<turn|>",
}
"""Templates of Axolotl that end turns with a token that is not their tokenizers' EOS"""


class StopTokenNotTrained(ConfigRule):
    code = "CFG027"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    stacks = ("axolotl",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no data set is rendered by a chat template, or the stop token is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if not self._indices_of_chat_datasets():
            return Unmet("it is about data sets of the type chat_template, and there is none")
        own = str(self.subject.raw.get("chat_template") or "tokenizer_default").startswith(
            "tokenizer_default"
        )
        known = (
            self.subject.raw.get("eot_tokens")
            or not own
            or answer_end_and_eos(self.subject)[0] is not None
        )
        return None if known else NO_TOKENIZER

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many data sets leave their stop tokens out of the loss."""
        return make_count_measurement(
            "data sets whose stop tokens are left out of the loss",
            0,
            len(self._indices_of_chat_datasets()),
        )

    def _indices_of_chat_datasets(self) -> list[int]:
        """The indices of the data sets that a chat template renders."""
        return [
            index
            for index, item in numbered_tables_of_list(self.subject, "datasets")
            if _is_rendered_by_chat_template(item)
        ]

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        if config.stack != "axolotl" or config.spec.training.method != "sft":
            return
        sets = {
            index: item
            for index, item in numbered_tables_of_list(config, "datasets")
            if _is_rendered_by_chat_template(item)
        }
        for index, item in sets.items():
            if item.get("train_on_eot", item.get("train_on_eos")) == "none":
                yield self._finding_on_untrained_end(index, item)
        if not sets or config.raw.get("eot_tokens"):
            return
        first = next(iter(sets.values()))
        name = str(
            config.raw.get("chat_template") or first.get("chat_template") or "tokenizer_default"
        )
        end = self._finding_on_other_turn_end_token(name)
        if end is not None:
            yield end

    def _finding_on_untrained_end(self, index: int, item: Mapping[str, Any]) -> Finding:
        """The finding on a data set that trains no end of a turn at all."""
        place = (f"datasets.{index}.train_on_eos", f"datasets.{index}.train_on_eot")
        return self.finding(
            (
                f"{item.get('path')}: the stop token is not in the loss, because train_on_eos is none: the model"
                " does not learn to stop"
            ),
            "remove train_on_eos (the default is turn)",
            cases=[setting_case(self.subject, "none", *place)],
        )

    def _finding_on_other_turn_end_token(self, name: str) -> Finding | None:
        """The finding that the template of this name ends turns with another token than the one
        that is trained.

        None where they are one, or where they are not known.
        """
        config = self.subject
        is_tokenizers = name.startswith("tokenizer_default")
        if not is_tokenizers and name not in MARKERS:
            return None
        end, eos = answer_end_and_eos(config) if is_tokenizers else (TURN_ENDS.get(name), None)
        eos = config.spec.training.special_tokens.get("eos_token", eos)
        if end is None or end == eos or (is_tokenizers and eos is None):
            return None
        return self.finding(
            f"turns end with {end}, but Axolotl only trains on {eos or 'the EOS of the tokenizer'}: the model does"
            " not learn to stop",
            f'set eot_tokens: ["{end}"]',
            severity="error" if is_tokenizers else "warning",
            cases=[
                setting_case(config, name, "chat_template"),
                setting_case(config, "not set", "eot_tokens"),
            ],
        )


def _is_rendered_by_chat_template(item: Mapping[str, Any]) -> bool:
    """Does a chat template render this data set?"""
    return item.get("type") == "chat_template"
