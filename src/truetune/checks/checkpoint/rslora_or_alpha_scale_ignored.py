"""Some engines do not read how this adapter is scaled.

## What it does
Reports `use_rslora`, `alpha_pattern`, `rank_pattern`, `use_dora` and biases in adapter_config.json, with the scale that
the adapter was trained with. It is info.

## Why it is bad
Training used `lora_alpha / sqrt(r)`, or another scale for some modules. Engines and converters that apply `lora_alpha /
r` throughout, or leave out the magnitudes of DoRA, make the adapter too weak or too strong.

## Example
```yaml
lora: [q_proj]
adapter_config: {use_rslora: true}
```

## Use instead
```yaml
lora: [q_proj]
```

## Fix safety
Merging with peft before serving (`merge_and_unload`) applies the right scale, and the engine needs no adapter support.

## References
- vllm-project/vllm#6909, vllm-project/vllm#10798, sgl-project/sglang#40835, NVIDIA/TensorRT-LLM#1477
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

KEYS = ("use_rslora", "alpha_pattern", "rank_pattern", "use_dora", "lora_bias")


class RsloraOrAlphaScaleIgnored(CheckpointRule):
    code = "CKP024"
    fault = Fault.ADAPTER_STRENGTH_DIFFERS
    symptoms = ("garbage-output", "nothing-is-learned", "good-here-bad-there")
    severity = "info"
    stability = "stable"
    since = "0.1.0"
    kind = "adapter"
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.adapter_config:
            return Unmet("there is no adapter_config.json", "put it beside the weights")
        return None

    def measurement_if_clean(self) -> str:
        """The adapter's lora_alpha and r, which every engine reads."""
        config = self.subject.adapter_config
        return (
            f"lora_alpha {config.get('lora_alpha')} over r {config.get('r')}, as every engine"
            " reads it"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject.adapter_config
        used = [name for name in KEYS if config.get(name)]
        if not used:
            return
        alpha, rank = config.get("lora_alpha"), config.get("r")
        evidence = []
        if isinstance(alpha, int | float) and type(rank) is int and rank > 0:
            scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
            evidence.append(
                f"trained with a scale of {scale:.4g}; lora_alpha / r is {alpha / rank:.4g}"
            )
        # A note: which engine will serve it is not known, and peft reads all of them.
        yield self.finding(
            f"{', '.join(used)}: some engines do not read {'it' if len(used) == 1 else 'these'}, and would apply the"
            " adapter at another strength",
            "merge the adapter before serving (truetune merge ADAPTER), or compare the engine's answers with peft's",
            evidence=evidence,
        )
