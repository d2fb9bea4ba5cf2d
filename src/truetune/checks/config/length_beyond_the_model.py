"""Rows may be longer than the maximum number of positions that the model was trained with.

## What it does
Compares the maximum length in the settings with `max_position_embeddings` in the model's config.json. It does not fire
if either of them scales positions, or if rows are packed.

## Why it is bad
With rotary positions, the model was never trained beyond that length: loss and text get worse from there on. With
learned positions (GPT-2), the run stops at the first longer row.

## Example
```yaml
files:
  model/config.json: {model_type: llama, max_position_embeddings: 2048}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 8192
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama, max_position_embeddings: 2048}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
```

## Fix safety
A shorter limit truncates or drops rows; `truetune check DATA -t TOKENIZER` counts them.

## References
- huggingface/sentence-transformers#2738, meta-llama/llama3#219
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_MODEL
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.model_position_limit_and_scaling import (
    does_model_scale_rotary_positions,
    positions_of_model,
)
from truetune.checks.rule import ConfigRule

SCALING_KEYS = (
    "rope_scaling",
    "overrides_of_model_config",
    "model_config",
    "model_init_kwargs",
    "shift_attn",
)
"""Keys with which a run may reach further"""


class LengthBeyondTheModel(ConfigRule):
    code = "CFG034"
    fault = Fault.ROWS_EXCEED_MODEL_POSITIONS
    severity = "warning"
    since = "0.1.0"
    about = ("max_length",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the model's number of positions is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return NO_MODEL if self._max_positions_of_model() is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and the positions that the model knows."""
        return (
            f"{self.describe_compared_settings()}; the model was trained with {self._max_positions_of_model():,}"
            " positions"
        )

    def _max_positions_of_model(self) -> int | None:
        """How many positions the model knows by its config.json; None where that is not here."""
        return positions_of_model(model_config(self.subject))

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        limit, known = config.spec.max_length, self._max_positions_of_model()
        if not limit or known is None or limit <= known or config.spec.training.packing:
            return
        if does_model_scale_rotary_positions(model_config(config)) or any(
            map(config.raw.get, SCALING_KEYS)
        ):
            return
        yield self.finding(
            f"rows may have up to {limit:,} tokens, but the model was trained with {known:,} positions",
            f"set {config.places['max_length'].key if 'max_length' in config.places else 'max_length'} to {known:,},"
            " or set rope_scaling for longer rows",
            cases=[
                setting_case(config, limit, "max_length"),
                Case(f"max_position_embeddings: {known}", file=f"{config.spec.model}/config.json"),
            ],
        )
