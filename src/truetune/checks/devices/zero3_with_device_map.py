"""device_map is set together with DeepSpeed ZeRO-3 or FSDP.

## What it does
Looks at `device_map` together with ZeRO stage 3 or FSDP, which place the weights themselves.

## Why it is bad
transformers stops with "DeepSpeed Zero-3 is not compatible with passing a `device_map`". Under FSDP, every process
loads the whole model on the mapped device, which is the memory that sharding was meant to save.

## Example
```yaml
config: {training: {devices: 4, deepspeed_stage: 3, device_map: "cuda:0"}}
```

## Use instead
```yaml
config: {training: {devices: 4, deepspeed_stage: 3}}
```

## Fix safety
Safe: ZeRO-3 and FSDP load and place each shard.

## References
- transformers/integrations/accelerate.py: "DeepSpeed Zero-3 is not compatible with passing a `device_map`."
- huggingface/transformers#31557
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.launch_setting_constants import (
    SPREADING_MAPS,
    STACKS_THAT_PLACE_THE_MODEL,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule


class Zero3WithDeviceMap(DeviceRule):
    code = "DEV009"
    fault = Fault.DEVICE_MAP_IN_DISTRIBUTED_TRAINING
    symptoms = ("several-gpus",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        device_map, zero3 = self.training.device_map, self.training.deepspeed_stage == 3
        # A map that spreads the layers belongs to device-map-splits-the-trained-model: one fault, one rule.
        if device_map in (None, "none", *SPREADING_MAPS):
            return
        if self.config.stack in STACKS_THAT_PLACE_THE_MODEL:
            return
        if not (zero3 or self.training.fsdp):
            return
        yield self.finding(
            f"device_map: {device_map} is set, but {'ZeRO-3' if zero3 else 'FSDP'} places the weights itself"
            + (": transformers stops" if zero3 else ""),
            "remove device_map",
            severity="error" if zero3 else "warning",
            cases=[setting_case(self.config, device_map, "training.device_map")],
        )
