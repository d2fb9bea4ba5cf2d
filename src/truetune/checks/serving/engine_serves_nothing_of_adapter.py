"""The engine loads the adapter without an error and serves nothing of it.

## What it does
Looks up the module of each tensor among those of the engine's class of models, after the renames that its loader makes.
If none is there, the loader leaves all of them out, and the server answers like the base.

## Why it is bad
An adapter that was trained with `AutoModelForCausalLM` names `model.layers`; one trained with the class for pictures
names `model.language_model.layers`. vLLM finds neither under the other's name, loads the adapter, and says nothing.

## Example

```yaml
engine: vllm
engine-version: 0.32.0
architecture: Gemma3ForConditionalGeneration
adapter: {r: 8, lora_alpha: 16}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
```

## Use instead

```yaml
engine: vllm
engine-version: 0.32.0
architecture: Gemma3ForConditionalGeneration
adapter: {r: 8, lora_alpha: 16}
tensors:
  base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
```

## Fix safety
Renaming the tensors changes no value: `truetune export --for` writes a copy and compares it byte for byte.

## References

- vllm-project/vllm#34186, vllm-project/vllm#48019, vllm-project/vllm#55193, vllm-project/vllm#41754
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import PEFT_PREFIX
from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import PredictedLoading
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.serving.adapter_loading_evidence import (
    MERGE,
    cases_of_fates,
    evidence_of_fates,
)


class EngineServesNothingOfAdapter(AdapterLoadingRule):
    code = "SRV015"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    severity = "error"
    symptoms = ("good-here-bad-there",)

    def measurement_if_clean(self) -> str:
        """How many tensors the engine serves."""
        served = len(self.subject.with_effect("served"))
        return f"{served:,} of {len(self.subject.fates):,} tensors are served"

    def findings(self) -> Iterator[Finding]:
        """The finding on an adapter of which no tensor finds its module."""
        loading = self.subject
        if loading.is_refused_whatever_rank or not loading.is_nothing_served:
            return
        ignored = loading.with_effect("ignored")
        yield self.finding(
            f"{loading.engine_name} serves nothing of this adapter: none of its {len(ignored):,} tensors fits"
            f" {loading.architecture.name}, and it answers like the base",
            _remedy(loading),
            evidence=evidence_of_fates(loading, ignored),
            cases=cases_of_fates(ignored),
            count=len(ignored),
            total=len(loading.fates),
        )


def _remedy(loading: PredictedLoading) -> str:
    """The rename that makes the engine serve it, or the merge."""
    names, loader = loading.serving_names, loading.loader
    if names is None:
        return f"{MERGE}; no rename of its tensors makes this engine serve it"
    old, new = names
    return (
        f"rename its tensors, {PEFT_PREFIX}{old} to {PEFT_PREFIX}{new} (truetune export ADAPTER --for {loader.engine}"
        f" --engine-version {loader.release} -o NEW), or {MERGE}"
    )
