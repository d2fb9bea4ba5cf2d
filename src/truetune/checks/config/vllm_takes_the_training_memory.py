"""vLLM reserves most of the memory of the GPU on which the policy is trained.

## What it does
Looks at TRL settings with `use_vllm` and `vllm_mode: colocate` if `vllm_gpu_memory_utilization` is above 0.7 and
`vllm_enable_sleep_mode` does not free the memory during training steps.

## Why it is bad
vLLM reserves that share of the whole GPU when the trainer is created. The policy, gradients, optimizer states and
activations must fit into the rest. The start fails ("Free memory on device ... is less than desired GPU memory
utilization"), or the first step runs out of memory. vLLM's own default of 0.9 is for a GPU that it does not share;
TRL's default is 0.3.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  use_vllm: true
  vllm_mode: colocate
  vllm_gpu_memory_utilization: 0.9
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  use_vllm: true
  vllm_mode: colocate
  vllm_gpu_memory_utilization: 0.3
```

## Fix safety
vLLM's share must hold a second copy of the weights and the KV cache: if it is too small, generation is slow or stops
with "No available memory for the cache blocks". With `vllm_mode: server`, vLLM runs on separate GPUs.

## References
- TRL documentation, vLLM integration: colocate mode; huggingface/trl `GRPOConfig.vllm_gpu_memory_utilization`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import MAX_VLLM_SHARE
from truetune.checks.rule import ConfigRule

VLLM_MEMORY_KEY = "vllm_gpu_memory_utilization"
SLEEP_KEYS = ("vllm_enable_sleep_mode", "sleep_level")
"""Of TRL and of ms-swift: vLLM gives its memory back while the policy is trained"""


class VllmTakesTheTrainingMemory(ConfigRule):
    code = "CFG045"
    fault = Fault.GPU_MEMORY_TAKEN_BY_ANOTHER_MODEL
    severity = "warning"
    stacks = ("trl",)
    about = (VLLM_MEMORY_KEY,)

    def findings(self) -> Iterator[Finding]:
        config, raw = self.subject, self.subject.raw
        share = raw.get(VLLM_MEMORY_KEY)
        is_beside_the_policy = raw.get("use_vllm") is True and raw.get("vllm_mode") == "colocate"
        if (
            not is_beside_the_policy
            or any(map(raw.get, SLEEP_KEYS))
            or not isinstance(share, int | float)
        ):
            return
        if share > MAX_VLLM_SHARE:
            yield self.finding(
                f"vLLM reserves {share:.0%} of the GPU on which the policy is trained: {1 - share:.0%} is left for"
                " weights, gradients and activations",
                (
                    f"set {VLLM_MEMORY_KEY} to 0.3, or set vllm_mode: server, remove {VLLM_MEMORY_KEY} and give vLLM"
                    " separate GPUs"
                ),
                cases=[
                    setting_case(config, share, VLLM_MEMORY_KEY),
                    setting_case(config, "colocate", "vllm_mode"),
                ],
            )
