"""FSDP cannot shard the quantized weights of this run.

## What it does
Looks at FSDP with a quantized base: 8 bits never work with it, and 4 bits only if the weights are stored in the dtype
of the others (`bnb_4bit_quant_storage`).

## Why it is bad
By default, bitsandbytes stores 4-bit weights as uint8. FSDP only shards weights that have the same dtype as the rest:
the run stops with a dtype error, or keeps the whole model on each GPU.

## Example
```yaml
config: {stack: trl, training: {fsdp: true, devices: 2, load_in: 4, dtype: bfloat16, lora: {r: 8}}}
```

## Use instead
```yaml
config:
  stack: trl
  training:
    fsdp: true
    devices: 2
    load_in: 4
    dtype: bfloat16
    lora: {r: 8}
    other: {bnb_4bit_quant_storage: bfloat16}
```

## Fix safety
The storage dtype changes the memory layout of the same 4 bits, and no value. Axolotl and LLaMA-Factory set it
themselves.

## References
- bitsandbytes documentation, "FSDP-QLoRA"; huggingface/peft#1432, huggingface/trl#1375,
  huggingface/trl#1854, bitsandbytes-foundation/bitsandbytes#1709
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.memory_settings import flatten_stack_settings

STACKS_THAT_SET_STORAGE = ("axolotl", "llama-factory")
"""Stacks that set the storage dtype; Axolotl patches FSDP for 8 bits as well"""


class FsdpQuantizedWeights(DeviceRule):
    code = "DEV008"
    fault = Fault.WEIGHTS_REFUSED_BY_DDP_OR_FSDP
    symptoms = ("out-of-memory", "several-gpus")
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if (
            not self.training.fsdp
            or self.training.load_in is None
            or self.config.stack in STACKS_THAT_SET_STORAGE
        ):
            return
        cases = [
            setting_case(self.config, self.training.load_in, "training.load_in"),
            setting_case(self.config, True, "training.fsdp"),
        ]
        # bitsandbytes' own default is uint8; a script may write the dtype as `torch.bfloat16`.
        storage = str(
            flatten_stack_settings(self.training.other).get("bnb_4bit_quant_storage", "uint8")
        ).removeprefix("torch.")
        if self.training.load_in == 8:
            yield self.finding(
                "FSDP cannot shard 8-bit weights",
                "use 4 bits with bnb_4bit_quant_storage, or DeepSpeed ZeRO-2",
                cases=cases,
            )
        elif storage == "uint8":
            yield self.finding(
                "FSDP cannot shard 4-bit weights that are stored as uint8, the default",
                f"set bnb_4bit_quant_storage: {self.training.dtype or 'bfloat16'}, the dtype of the"
                " other weights",
                cases=cases,
            )
