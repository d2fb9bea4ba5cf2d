"""The engine that is to serve the adapter does not load it.

## What it does
Follows each tensor and setting of the adapter through the loader of the named engine and release, by a table of what
that loader does, and looks for what makes it fail: DoRA, biases, `modules_to_save`, trained tokens, modules that the
engine's class of models does not have, or a class that takes no adapters.

## Why it is bad
The server does not start, or answers requests for this adapter with an error. That is known before a GPU is rented.

## Example

```yaml
engine: vllm
engine-version: 0.32.0
architecture: LlamaForCausalLM
adapter: {r: 8, lora_alpha: 16, use_dora: true}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
  base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector: [64]
```

## Use instead

```yaml
engine: vllm
engine-version: 0.32.0
architecture: LlamaForCausalLM
adapter: {r: 8, lora_alpha: 16}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
```

## Fix safety
Merging is exact but for the rounding of the base's type, and each engine serves the merged model.

## References

- vllm-project/vllm#10849, vllm-project/vllm#9280, vllm-project/vllm#6983
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.serving.adapter_loading_evidence import (
    MERGE,
    cases_of_fates,
    describe_setting,
    evidence_of_fates,
)


class EngineRefusesAdapter(AdapterLoadingRule):
    code = "SRV014"
    fault = Fault.ADAPTER_NOT_SERVED_WHOLE
    severity = "error"
    symptoms = ("good-here-bad-there",)
    judges_refused = True

    def measurement_if_clean(self) -> str:
        """How many tensors the loader takes without an error."""
        return f"0 of {len(self.subject.fates):,} tensors are refused"

    def findings(self) -> Iterator[Finding]:
        """The finding on an adapter that the loader fails on."""
        loading = self.subject
        if not loading.is_refused_whatever_rank:
            return
        refused = loading.with_effect("refused")
        settings = [name for name, effect in loading.properties.items() if effect == "refused"]
        evidence = [
            f"{describe_setting(loading, name)} is refused ({loading.loader.source(name)})"
            for name in settings
        ]
        if not loading.architecture.takes_adapters:
            evidence = [
                f"{loading.architecture.name} takes no adapters ({loading.architecture.source})"
            ]
        yield self.finding(
            f"{loading.engine_name} does not load this adapter on {loading.architecture.name}",
            MERGE,
            evidence=[*evidence, *evidence_of_fates(loading, refused)],
            cases=cases_of_fates(refused),
            count=len(refused) or None,
            total=len(loading.fates) if refused else None,
        )
