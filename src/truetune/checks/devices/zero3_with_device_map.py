"""DeepSpeed ZeRO-3 or FSDP is given a device map.

## What it does
Looks at `device_map` beside ZeRO stage 3 and FSDP, which place the weights themselves.

## Why it is bad
transformers stops with "DeepSpeed Zero-3 is not compatible with passing a `device_map`"; under FSDP the whole model is
loaded on the mapped device by every process, which is the memory that sharding was to save.

## Example
```yaml
config: {training: {devices: 4, deepspeed_stage: 3, device_map: "cuda:0"}}
```

## Use instead
```yaml
config: {training: {devices: 4, deepspeed_stage: 3}}
```

## Fix safety
Nothing is lost: ZeRO-3 and FSDP load and place each shard.

## References
- transformers/integrations/accelerate.py: "DeepSpeed Zero-3 is not compatible with passing a `device_map`."
- huggingface/transformers#31557
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.devices.device_map_auto_with_ddp import PLACES_ITSELF, SPREADING
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule


class Zero3WithDeviceMap(DeviceRule):
    code = "DEV009"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        mapped, zero3 = self.training.device_map, self.training.deepspeed_stage == 3
        spread = mapped in SPREADING
        if mapped in (None, "none") or spread or self.config.stack in PLACES_ITSELF:
            return
        if not (zero3 or self.training.fsdp):
            return
        yield self.finding(
            f"device_map: {mapped} beside {'ZeRO-3' if zero3 else 'FSDP'}, which places the weights"
            " itself" + ("; transformers stops" if zero3 else ""),
            "leave device_map out",
            severity="error" if zero3 else "warning",
            cases=[case(self.config, mapped, "training.device_map")],
        )
