"""The rank of the adapter is over what the engine takes without a flag.

## What it does
Compares the highest rank of the adapter (`r`, `rank_pattern`, its tensors) with the default of the engine's flag.

## Why it is bad
vLLM takes ranks up to 16 unless a flag sets another limit, and fails on the adapter with an error.

## Example

```yaml
engine: vllm
engine-version: 0.32.0
architecture: LlamaForCausalLM
adapter: {r: 40, lora_alpha: 16}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [40, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 40]
```

## Use instead

```yaml
engine: vllm
engine-version: 0.32.0
architecture: LlamaForCausalLM
adapter: {r: 16, lora_alpha: 16}
tensors:
  base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: [16, 64]
  base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight: [64, 16]
```

## Fix safety
The flag costs memory on the GPU for each adapter that is held, in proportion to the rank.

## References

- vllm-project/vllm#2847
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.serving.adapter_loading_evidence import MERGE


class AdapterRankOverEngineLimit(AdapterLoadingRule):
    code = "SRV018"
    fault = Fault.ADAPTER_NOT_SERVED_WHOLE
    severity = "error"
    symptoms = ("good-here-bad-there",)
    judges_refused = True

    def measurement_if_clean(self) -> str:
        """The rank, and the limit."""
        limit = self.subject.loader.max_rank
        return f"rank {self.subject.rank}" + (
            f" of at most {limit}" if limit else "; there is no limit"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on a rank for which the engine needs a flag."""
        loading = self.subject
        if not loading.is_rank_over_limit:
            return
        loader, rank = loading.loader, loading.rank
        # The flag takes some values alone, and one that is high enough may be above the rank.
        value = next((limit for limit in loader.ranks if limit >= rank), None)
        remedy = f"start it with {loader.rank_flag} {value if value is not None or loader.ranks else rank}"
        if loader.ranks and value is None:
            remedy = f"{MERGE}: {loader.rank_flag} takes {loader.ranks[-1]} at most"
        yield self.finding(
            f"the rank of the adapter is {rank}, and {loading.engine_name} takes {loader.max_rank} without a flag",
            remedy,
            evidence=[loader.source("rank_over_limit")],
        )
