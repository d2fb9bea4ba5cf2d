"""Settings select layers by numbers that the model does not have.

## What it does
Compares the layer numbers in Axolotl's `unfrozen_parameters`, in `layers_to_transform` and in `target_modules` with the
number of layers in the model, from its config.json or, for a published model, by its name. A pattern is fine if it
matches any layer of the model.

## Why it is bad
There is no error if a name matches no weight: the layer stays frozen. If none matches, the loss is flat at any learning
rate; if some do, fewer layers are trained than the settings say.

## Example
```yaml
config:
  base_model: Qwen/Qwen2.5-7B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  learning_rate: 0.00001
  unfrozen_parameters: ['model.layers.30.', 'model.layers.31.']
```

## Use instead
```yaml
config:
  base_model: Qwen/Qwen2.5-7B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  learning_rate: 0.00001
  unfrozen_parameters: ['model.layers.26.', 'model.layers.27.']
```

## Fix safety
More weights are trained: gradients and the optimizer need memory for them.

## References
- Axolotl documentation, `unfrozen_parameters`; peft documentation, `layers_to_transform`; `num_hidden_layers`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.layer_numbers_named_and_model_depth import (
    describe_numbers,
    layer_count_of_model,
    layer_numbers_in_texts,
)

LISTS_OF_NUMBERS = ("peft_layers_to_transform", "layers_to_transform")
LISTS_OF_NAMES = ("unfrozen_parameters", "lora_target_modules", "target_modules", "lora_target")
ROWS_OF_A_WEIGHT = re.compile(r"\[\d*:\d*\]$")
"""What Axolotl takes behind a name: `model.embed_tokens.weight$[:32000]`"""
NO_LAYERS = Unmet(
    "it is about settings that choose layers by number, of a model whose number of layers is known"
)


class SettingsNameMissingLayers(ConfigRule):
    code = "CFG110"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the settings choose no layers by number.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        return None if any(True for _ in self._chosen_layer_numbers()) else NO_LAYERS

    def measurement_if_clean(self) -> str:
        """What was measured: each key with the numbers of the layers that it chooses."""
        keys = [
            f"{key}: layers {describe_numbers(numbers)}"
            for key, numbers, _ in self._chosen_layer_numbers()
        ]
        return "; ".join(keys)

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        for key, numbers, layers in self._chosen_layer_numbers():
            inside = [number for number in numbers if number < layers]
            beyond = [number for number in numbers if number >= layers]
            if not beyond:
                continue
            rest = (
                f"only {describe_numbers(inside)} exist, so fewer layers are trained than the settings say"
                if inside
                else "none of these layers exists, so all stay frozen"
            )
            first = max(0, layers - len(numbers))
            yield self.finding(
                f"{config.spec.model} has layers 0 to {layers - 1}, but {key} names {describe_numbers(numbers)}:"
                f" {rest}",
                f"name layers that exist (the last {min(len(numbers), layers)} are"
                f" {describe_numbers(list(range(first, layers)))}), then check that the number of trainable"
                " parameters in the log is that of these layers",
                severity="warning" if inside else "error",
                cases=[setting_case(config, describe_numbers(numbers), key)],
            )

    def _chosen_layer_numbers(self) -> Iterator[tuple[str, list[int], int]]:
        """Each key that chooses layers, the numbers that it names, and how many layers the model has."""
        config = self.subject
        layers = layer_count_of_model(config.spec.model)
        # What a script sets, layer-numbers-beyond-the-model reads.
        if layers is None or is_config_of_python_program(config):
            return
        for key in (*LISTS_OF_NUMBERS, *LISTS_OF_NAMES):
            numbers = _layer_numbers_in(config.raw.get(key), layers)
            if numbers:
                yield key, numbers, layers


def _layer_numbers_in(value: Any, layers: int) -> list[int]:
    """The numbers of layers that a value names."""
    parts = value if isinstance(value, list) else [value]
    numbers = {part for part in parts if type(part) is int and part >= 0}
    texts = [ROWS_OF_A_WEIGHT.sub("", part) for part in parts if isinstance(part, str)]
    return sorted(numbers | set(layer_numbers_in_texts(texts, layers)))
