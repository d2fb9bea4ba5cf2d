"""FSDP cannot share out the quantized weights of this run.

## What it does
Looks at FSDP beside a quantized base: 8 bits never work with it, and 4 bits only where the weights are stored in the
dtype of the others (`bnb_4bit_quant_storage`).

## Why it is bad
bitsandbytes stores 4-bit weights as uint8 unless told otherwise. FSDP shares out only what has the dtype of the rest:
the run stops with a message on dtypes, or keeps the whole model on each GPU.

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
The storage dtype changes how the same 4 bits are laid out, and no value. Axolotl and LLaMA-Factory do it themselves.

## References
- bitsandbytes documentation, "FSDP-QLoRA"; huggingface/peft#1432, huggingface/trl#1375,
  huggingface/trl#1854, bitsandbytes-foundation/bitsandbytes#1709
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.memory_settings import flatten_stack_settings

STACKS_THAT_SET_STORAGE = ("axolotl", "llama-factory")
"""Stacks that set the storage dtype; Axolotl patches FSDP for 8 bits as well"""


class FsdpQuantizedWeights(DeviceRule):
    code = "DEV008"
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
                "FSDP cannot share out weights in 8 bits",
                "use 4 bits with bnb_4bit_quant_storage, or DeepSpeed ZeRO-2",
                cases=cases,
            )
        elif storage == "uint8":
            yield self.finding(
                "FSDP with 4-bit weights that are stored as uint8: they cannot be shared out with"
                " the others",
                f"set bnb_4bit_quant_storage: {self.training.dtype or 'bfloat16'}, the dtype of the"
                " other weights",
                cases=cases,
            )
