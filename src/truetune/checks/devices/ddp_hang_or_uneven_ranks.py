"""Processes may get different numbers of batches and wait for each other at the end of an epoch.

## What it does
Looks at multi-GPU runs (one process per GPU) for settings that switch balancing off: `even_batches: false` without
`dataloader_drop_last`, and a stream with `dispatch_batches: false` but without `max_steps`.

## Why it is bad
A process with one batch fewer never joins the last gradient reduction. The others wait at the end of the first epoch
until NCCL's timeout, 30 minutes later.

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
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.memory_settings import flatten_stack_settings


class DdpHangOrUnevenRanks(DeviceRule):
    code = "DEV005"
    fault = Fault.PROCESSES_WAIT_FOR_EACH_OTHER
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
                f"with even_batches: false, {world} processes may get different numbers of batches: at the end of an"
                " epoch they wait for each other and hang",
                "remove even_batches: false, or set dataloader_drop_last: true",
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
                f"{world} processes read a stream separately (dispatch_batches: false): it may end at different"
                " times, and the others hang",
                "set max_steps, or remove dispatch_batches: false",
                cases=[
                    setting_case(
                        self.config,
                        False,
                        "accelerator_config.dispatch_batches",
                        "dispatch_batches",
                    )
                ],
            )
