"""The engine serves the adapter and leaves out a part that was trained.

## What it does
Looks for tensors that the loader of the named engine and release drops without an error, as modules of the vision part,
full layers of `modules_to_save`, or modules under another name, and for settings that it does not read, as
`init_lora_weights` of PiSSA.

## Why it is bad
The served model is none that was ever evaluated: a part of what training changed is there, and the rest is the base's.

## Example

```yaml
engine: vllm
engine-version: 0.32.0
architecture: Gemma3ForConditionalGeneration
adapter: {r: 8, lora_alpha: 16}
tensors:
  base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
  base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight: [8, 64]
  base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_B.weight: [64, 8]
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
Merging is exact but for the rounding of the base's type, and each engine serves the merged model.

## References

- vllm-project/vllm#41754, ggml-org/llama.cpp#9948
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.serving.adapter_loading_evidence import (
    MERGE,
    cases_of_fates,
    describe_setting,
    evidence_of_fates,
)


class EngineLeavesOutPartOfAdapter(AdapterLoadingRule):
    code = "SRV016"
    fault = Fault.ADAPTER_NOT_SERVED_WHOLE
    severity = "error"
    symptoms = ("good-here-bad-there",)
    moot_where = ("engine-serves-nothing-of-adapter",)

    def measurement_if_clean(self) -> str:
        """How many tensors the engine leaves out."""
        return f"0 of {len(self.subject.fates):,} tensors are left out"

    def findings(self) -> Iterator[Finding]:
        """The finding on the tensors and settings that the loader drops."""
        loading = self.subject
        if loading.is_refused_whatever_rank or loading.is_nothing_served:
            return
        # A copy of the base's own tensor is nothing that was trained.
        ignored = [fate for fate in loading.with_effect("ignored") if fate.reason != "base_copies"]
        settings = [name for name, effect in loading.properties.items() if effect == "ignored"]
        if not ignored and not settings:
            return
        count = total = None
        if ignored:
            count, total = len(ignored), len(loading.fates)
            part = f"{count:,} of {total:,} tensors of the adapter"
        else:
            part = describe_setting(loading, settings[0])
        evidence = [
            f"{describe_setting(loading, name)} is not read ({loading.loader.source(name)})"
            for name in settings
        ]
        yield self.finding(
            f"{loading.engine_name} leaves out {part} on {loading.architecture.name}",
            _remedy(loading.loader.other_parts_flag, [fate.tensor.module for fate in ignored]),
            evidence=[*evidence, *evidence_of_fates(loading, ignored)],
            cases=cases_of_fates(ignored),
            count=count,
            total=total,
        )


def _remedy(flag: str | None, modules: Sequence[str]) -> str:
    """What to do where the engine leaves these modules out; `flag` makes it take those of other parts than the text."""
    is_other_part = bool(modules) and all(map(_is_of_other_part, modules))
    return f"start it with {flag}, or {MERGE}" if flag and is_other_part else MERGE


def _is_of_other_part(module: str) -> bool:
    """Is a module one of a part that sees or hears?"""
    return any(word in module for word in ("visual", "vision", "audio", "projector", "connector"))
