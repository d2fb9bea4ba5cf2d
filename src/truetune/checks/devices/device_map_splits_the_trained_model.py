"""device_map splits the model over the GPUs, although several processes train it or the GPUs then wait for each other.

## What it does
Compares `device_map` (`auto`, `balanced`, `sequential`) with the number of processes, with DeepSpeed and FSDP, and with
the GPUs that one process sees. The number of processes comes from the launcher's variables, the settings, or a command
in the project that names the settings (`accelerate launch --num_processes 4 ... sft.yaml`). It is info if the program
(Axolotl) replaces the map by each process's own GPU.

## Why it is bad
A multi-GPU launch starts one process per GPU. With a device map, each process would spread its own copy over all GPUs,
and accelerate stops the run. With one process, the layers are on several GPUs that work one after the other: four GPUs
cost four times as much and are no faster than one.

## Example
```yaml
config: {training: {device_map: auto}}
machine: {gpus: 4, memory: 80, environment: {WORLD_SIZE: "4", RANK: "0", LOCAL_RANK: "0"}}
```

## Use instead
```yaml
config: {training: {}}
machine: {gpus: 4, memory: 80, environment: {WORLD_SIZE: "4", RANK: "0", LOCAL_RANK: "0"}}
```

## Fix safety
Without a device map, each process loads the whole model on its own GPU. It has to fit there; `truetune plan` says
whether it does.

## References
- huggingface/transformers#31557, huggingface/accelerate#2486, QwenLM/Qwen#900, QwenLM/Qwen#833,
  pacman100/LLM-Workshop#9
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.launch_setting_constants import (
    SPREADING_MAPS,
    STACKS_THAT_PLACE_THE_MODEL,
)
from truetune.checks.devices.read_architecture_and_row_count import find_local_architecture
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate_memory import estimate_memory
from truetune.memory.memory_settings import resolve_memory_settings
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)


class DeviceMapSplitsTheTrainedModel(DeviceRule):
    code = "DEV001"
    fault = Fault.DEVICE_MAP_IN_DISTRIBUTED_TRAINING
    severity = "error"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """The device map that is set, and the number of processes."""
        return f"device_map: {self.training.device_map or 'not set'}; processes: {self.subject.world_size}"

    def findings(self) -> Iterator[Finding]:
        device_map, visible = self.training.device_map, self.machine.visible_gpu_indices
        if device_map not in SPREADING_MAPS:
            return
        cases = [setting_case(self.config, device_map, "training.device_map")]
        sharding = self._describe_sharding()
        # The settings may not name the processes while a command of the project does: then their number is not known.
        command = next(commands_that_launch_several_processes(Path(self.config.path)), None)
        processes = "several" if command else ""
        if self.subject.world_size > 1:
            processes = f"{self.subject.world_size}"
        evidence = [f"several processes: {command}"] if command else []
        if processes and self.config.stack not in STACKS_THAT_PLACE_THE_MODEL:
            yield self.finding(
                f"device_map: {device_map} makes each of {processes} processes spread the model over all GPUs:"
                " accelerate stops the run",
                "remove device_map, so that each process uses its own GPU",
                evidence=evidence,
                cases=cases,
            )
        elif sharding:
            yield self.finding(
                f"device_map: {device_map} makes each process spread the model over all GPUs, but {sharding} needs"
                " one GPU per process",
                "remove device_map",
                severity="warning",
                cases=cases,
            )
        elif processes:
            yield self.finding(
                f"device_map: {device_map} has no effect with {processes} processes, because {self.config.stack}"
                " loads the whole model on each process's own GPU; with one process, it spreads the layers over"
                " GPUs that work one after the other",
                "remove device_map; if the layers are still spread over GPUs, the launch starts only one process",
                severity="info",
                evidence=evidence,
                cases=cases,
            )
        elif self.subject.world_size == 1 and len(visible) > 1 and self._does_run_fit_one_gpu():
            yield self.finding(
                f"device_map: {device_map} spreads the model over {len(visible)} GPUs, which then work one after the"
                " other: no faster than one GPU",
                f"remove device_map and start one process per GPU (torchrun --nproc_per_node {len(visible)})",
                severity="warning",
                cases=cases,
            )

    def _describe_sharding(self) -> str:
        """What shards the weights, for a message; empty where nothing does."""
        if self.training.deepspeed_stage is not None:
            return "DeepSpeed"
        return "FSDP" if self.training.fsdp else ""

    def _does_run_fit_one_gpu(self) -> bool:
        """Does the run fit one GPU? Where it does not, or nobody knows, spreading it may be the purpose."""
        model = find_local_architecture(self.config)
        if model is None:
            return False
        need = estimate_memory(
            model, resolve_memory_settings(self.config, model, gpus=1)
        ).peak.total
        return need <= min(
            self.machine.gpus[index].memory for index in self.machine.visible_gpu_indices
        )
