"""A streamed data set is not shuffled, or every process reads all of it.

## What it does
Looks at streamed data: whether shuffling is off, and whether its files can be split among the processes (their number
is a multiple of the number of processes).

## Why it is bad
The Trainer cannot shuffle a stream: batches follow the files, and the loss jumps where a source begins. If the files
cannot be split, each process reads all of them and throws most rows away: N GPUs wait for N times the reading.

## Example
```yaml
config:
  data: [a.jsonl, b.jsonl, c.jsonl]
  training: {devices: 2, shuffle: true, other: {streaming: true, dispatch_batches: false}}
```

## Use instead
```yaml
config:
  data: [a.jsonl, b.jsonl, c.jsonl, d.jsonl]
  training: {devices: 2, shuffle: true, other: {streaming: true, dispatch_batches: false}}
```

## Fix safety
Splitting files changes no row. A shuffle buffer (`buffer_size`) takes memory for its rows.

## References
- datasets documentation, `split_dataset_by_node`
- huggingface/datasets#5360, huggingface/datasets#5961, huggingface/datasets#7854, huggingface/datasets#8565,
  Qihoo360/360-LLaMA-Factory#46, lucidrains/DALLE-pytorch#230
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.launch_setting_constants import STREAMING_KEYS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.memory_settings import flatten_stack_settings


class IterableDatasetNotShardedOrShuffled(DeviceRule):
    code = "DEV006"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    symptoms = ("several-gpus",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        other, world = flatten_stack_settings(self.training.other), self.subject.world_size
        if not any(other.get(name) for name in STREAMING_KEYS):
            return
        files = len(self.config.spec.data)
        reads_alone = other.get("dispatch_batches") is False
        # An address or a pattern may stand for any number of files, so only plain names can be counted.
        are_counted = files and all(
            "://" not in name and "*" not in name for name in self.config.spec.data
        )
        # split_dataset_by_node gives out whole files only where their number is a multiple of the processes.
        if world > 1 and reads_alone and are_counted and files % world:
            yield self.finding(
                f"{files} streamed files cannot be split among {world} processes: each process reads all rows and"
                f" keeps one in {world}",
                f"split the data into a number of files that is a multiple of {world}",
                cases=[setting_case(self.config, True, *STREAMING_KEYS)],
            )
        if self.training.shuffle is False:
            yield self.finding(
                "the data are a stream that is not shuffled: batches follow the order of the files",
                (
                    "shuffle the files beforehand, or shuffle the stream: dataset.shuffle(seed=42,"
                    " buffer_size=10_000)"
                ),
                cases=[setting_case(self.config, False, "training.shuffle", *STREAMING_KEYS)],
            )
