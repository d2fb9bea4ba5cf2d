"""FSDP is set to wrap a layer class that the model does not have.

## What it does
Compares the class in `fsdp_config` (`transformer_layer_cls_to_wrap`) with the class of the model's layers, from its
config.json or its published name. Classes that belong to no known model are not checked.

## Why it is bad
The run stops at the start, after every process has loaded the weights: "Could not find the transformer layer class".

## Example
```yaml
config:
  base_model: Qwen/Qwen3-8B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  fsdp_config: {transformer_layer_cls_to_wrap: Qwen2DecoderLayer, auto_wrap_policy: TRANSFORMER_BASED_WRAP}
```

## Use instead
```yaml
config:
  base_model: Qwen/Qwen3-8B
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  fsdp_config: {transformer_layer_cls_to_wrap: Qwen3DecoderLayer, auto_wrap_policy: TRANSFORMER_BASED_WRAP}
```

## Fix safety
Safe: it changes how weights are grouped, not the training result. If the setting is removed, the class is taken from
the model.

## References
- tatsu-lab/stanford_alpaca#58, hiyouga/LLaMA-Factory#8279, huggingface/accelerate#1943
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.fsdp_layer_class import find_layer_class, layer_classes_of_other_models
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rule import ConfigRule

LAYER_CLASS_KEYS = ("transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap")


class FsdpWrapsAnotherModelsLayers(ConfigRule):
    code = "CFG047"
    fault = Fault.FSDP_DOES_NOT_SHARD_LAYERS
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet where no layer class is named, or that of the model is not known.
        """
        if not self._named_classes():
            return Unmet("it is about classes of layers that FSDP wraps, and none is named")
        if self._own_layer_class() is None:
            return Unmet("it is about models whose class of layers is known, and this is none")
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: the layer classes that FSDP wraps."""
        return f"FSDP wraps {self._named_classes()}, the layers of the model"

    def findings(self) -> Iterator[Finding]:
        own = self._own_layer_class()
        wrong = layer_classes_of_other_models(self._named_classes(), own) if own is not None else []
        if wrong:
            yield self.finding(
                (
                    f"FSDP is set to wrap {', '.join(wrong)}, but the layers of {self.subject.spec.model} are {own}:"
                    " the run stops at the start"
                ),
                f"set {LAYER_CLASS_KEYS[0]} to {own}, or remove it",
                cases=[
                    setting_case(self.subject, ", ".join(wrong), *LAYER_CLASS_KEYS, "fsdp_config")
                ],
            )

    def _named_classes(self) -> str:
        """The layer classes that the settings name, joined with commas; empty where none is named."""
        raw = self.subject.raw
        tables: list[Any] = [raw, raw.get("fsdp_config")]
        for table in tables:
            for name in LAYER_CLASS_KEYS:
                value = table.get(name) if isinstance(table, dict) else None
                if isinstance(value, str):
                    return value
                if isinstance(value, (list, tuple)):
                    return ",".join(str(item) for item in value)
        return ""

    def _own_layer_class(self) -> str | None:
        """The layer class that the model has; None where the model is not known."""
        model = self.subject.spec.model
        return (
            find_layer_class(model, Path(self.subject.path).parent) if model is not None else None
        )
