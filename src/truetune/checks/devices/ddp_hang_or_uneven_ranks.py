"""Processes may get different numbers of batches, and wait for each other at the end of an epoch.

## What it does
Looks at runs of several processes for settings that take the balance away: `even_batches: false` without
`dataloader_drop_last`, and a stream that is not dispatched (`dispatch_batches: false`) without `max_steps`.

## Why it is bad
A process with one batch less never joins the last reduction of gradients. The others wait until NCCL's time-out, 30
minutes later, at the end of the first epoch.

## Example
```yaml
config: {training: {devices: 4, other: {accelerator_config: {even_batches: false}}}}
```

## Use instead
```yaml
config: {training: {devices: 4, other: {accelerator_config: {even_batches: true}}}}
```

## Fix safety
`even_batches: true`, the default, repeats some rows at the end of an epoch; `dataloader_drop_last` leaves some out.

## References
- accelerate documentation, "Joining processes with uneven inputs"
- FareedKhan-dev/train-llm-from-scratch#32, huggingface/datasets#6437, huggingface/transformers#26724,
  huggingface/accelerate#2536
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.launch_setting_constants import STREAMING_KEYS
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.memory_settings import flatten_stack_settings


class DdpHangOrUnevenRanks(DeviceRule):
    code = "DEV005"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        other, world = flatten_stack_settings(self.training.other), self.subject.world_size
        # Where the last batch is dropped, every process drops to the same number.
        if world < 2 or other.get("dataloader_drop_last"):
            return
        if other.get("even_batches") is False:
            yield self.finding(
                f"{world} processes with even_batches: false: the last batches of an epoch may not"
                " be shared out evenly, and a process that has none left lets the others wait",
                "leave even_batches on, or set dataloader_drop_last: true",
                cases=[
                    setting_case(
                        self.config, False, "accelerator_config.even_batches", "even_batches"
                    )
                ],
            )
        stream = any(other.get(name) for name in STREAMING_KEYS)
        reads_alone = other.get("dispatch_batches") is False
        # With max_steps the run ends before any process has read its part to the end.
        if stream and reads_alone and (self.training.max_steps or 0) < 1:
            yield self.finding(
                f"{world} processes read a stream on their own (dispatch_batches: false) until it"
                " ends, which may be at different times",
                "set max_steps, or leave dispatch_batches out",
                cases=[
                    setting_case(
                        self.config,
                        False,
                        "accelerator_config.dispatch_batches",
                        "dispatch_batches",
                    )
                ],
            )
