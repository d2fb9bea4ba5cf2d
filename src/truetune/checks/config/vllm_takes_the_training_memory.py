"""vLLM shares the GPU with the policy, and reserves most of it.

## What it does
Looks at TRL's settings with `use_vllm` and `vllm_mode: colocate`, where `vllm_gpu_memory_utilization` is above 0.7 and
no `vllm_enable_sleep_mode` gives the memory back while the weights are trained.

## Why it is bad
vLLM takes that share of the whole GPU when the trainer is made. The policy, its gradients, the optimizer's states and
activations must fit into the rest: the start fails ("Free memory on device ... is less than desired GPU memory
utilization"), or the first step runs out of memory. vLLM's own default of 0.9 is for a GPU of its own; TRL's is 0.3.

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
What vLLM is given must hold the weights once more, and the cache of the answers: too little makes generation slow, or
ends with "No available memory for the cache blocks". With `vllm_mode: server`, vLLM has GPUs of its own.

## References
- TRL documentation, vLLM integration: colocate mode; huggingface/trl `GRPOConfig.vllm_gpu_memory_utilization`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import MAX_VLLM_SHARE
from truetune.checks.rule import ConfigRule

VLLM_MEMORY_KEY = "vllm_gpu_memory_utilization"
SLEEP_KEYS = ("vllm_enable_sleep_mode", "sleep_level")
"""Of TRL and of ms-swift: vLLM gives its memory back while the policy is trained"""


class VllmTakesTheTrainingMemory(ConfigRule):
    code = "CFG045"
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
                f"vLLM takes {share:.0%} of the GPU on which the policy is trained: its weights, gradients and "
                f"activations have {1 - share:.0%}",
                f"set {VLLM_MEMORY_KEY} to 0.3, or take vllm_mode server with GPUs of its own",
                cases=[
                    setting_case(config, share, VLLM_MEMORY_KEY),
                    setting_case(config, "colocate", "vllm_mode"),
                ],
            )
