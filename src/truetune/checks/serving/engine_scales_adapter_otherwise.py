"""The engine applies the adapter at another scale than it was trained with.

## What it does
Compares the scale that peft computes for each module (alpha / r, alpha / sqrt(r) with rsLoRA, `alpha_pattern` and
`rank_pattern` for single modules) with the one that the loader of the named engine and release computes.

## Why it is bad
With rsLoRA and rank 64 an engine that divides by r serves an eighth of the change. The tuned model is then near the
base.

## Example

```yaml
engine: sglang
engine-version: 0.5.23
architecture: LlamaForCausalLM
adapter: {r: 16, lora_alpha: 16, use_rslora: true, target_modules: [q_proj, v_proj]}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [16, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 16]
  base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight: [16, 64]
  base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight: [64, 16]
```

## Use instead

```yaml
engine: vllm
engine-version: 0.32.0
architecture: LlamaForCausalLM
adapter: {r: 16, lora_alpha: 16, use_rslora: true, target_modules: [q_proj, v_proj]}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [16, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 16]
  base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight: [16, 64]
  base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight: [64, 16]
```

## Fix safety
A copy of adapter_config.json with the named `lora_alpha` and without `use_rslora` is exact for adapters of one rank:
peft then computes the same scale as before.

## References

- sgl-project/sglang#40835
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
    PredictedLoading,
    ScaleDifference,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.serving.adapter_loading_evidence import MERGE

PROPERTY_OF_SETTING = {
    "use_rslora": "rslora",
    "alpha_pattern": "alpha_pattern",
    "rank_pattern": "rank_pattern",
}


class EngineScalesAdapterOtherwise(AdapterLoadingRule):
    code = "SRV017"
    fault = Fault.ADAPTER_STRENGTH_DIFFERS
    severity = "error"
    symptoms = ("good-here-bad-there",)

    def measurement_if_clean(self) -> str:
        """That the scales are the same."""
        return f"{len(self.subject.with_effect('served')):,} tensors at the scale of peft"

    def findings(self) -> Iterator[Finding]:
        """A finding for each setting of the scale that the loader does not read."""
        loading = self.subject
        if loading.is_refused_whatever_rank or loading.is_nothing_served:
            return
        for difference in loading.scale_differences:
            ratio = difference.served / difference.trained
            yield self.finding(
                f"{loading.engine_name} does not read {difference.setting}: {len(difference.modules):,} modules are"
                f" served at another scale, {difference.modules[0]} at {ratio:.3g} of the trained one",
                _remedy(loading, difference),
                evidence=[
                    f"{difference.served:.6g} instead of {difference.trained:.6g}"
                    f" ({loading.loader.source(PROPERTY_OF_SETTING[difference.setting])})"
                ],
                cases=[Case(module) for module in difference.modules],
                count=len(difference.modules),
            )


def _remedy(loading: PredictedLoading, difference: ScaleDifference) -> str:
    """The alpha that gives the trained scale, where one does for all modules; or the merge."""
    has_patterns = loading.config.get("alpha_pattern") or loading.config.get("rank_pattern")
    rank = loading.config.get("r")
    if difference.setting != "use_rslora" or has_patterns or not isinstance(rank, int):
        return MERGE
    alpha = difference.trained * rank
    return f"in a copy of adapter_config.json set lora_alpha to {alpha:.10g} and use_rslora to false, or {MERGE}"
