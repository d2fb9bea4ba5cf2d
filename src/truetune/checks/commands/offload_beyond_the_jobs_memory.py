"""The optimizer is offloaded to CPU memory, but the job requests too little of it.

## What it does
Takes the model that a launch trains in full, and the file or option that offloads its optimizer to the CPU (ZeRO's
`offload_optimizer`, FSDP's `fsdp_offload_params`). Adam keeps 12 bytes per weight there: the weight and two moments in
float32. The rule compares that with the memory that the job requests per node (`#SBATCH --mem`) or that `docker run`
allows. It does not fire for adapters, for several nodes, or if the model's size or the memory is not a plain number.

## Why it is bad
The kernel kills a process of the job while it creates the optimizer states, after the weights were loaded and before
the first step. There is no traceback, and the GPUs are nearly empty, which points away from the cause.

## Example
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --mem=64G
accelerate launch --use_deepspeed --num_processes 4 --zero_stage 3 --offload_optimizer_device cpu \
    train.py --model_name_or_path Qwen/Qwen2.5-7B
```

## Use instead
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --mem=200G
accelerate launch --use_deepspeed --num_processes 4 --zero_stage 3 --offload_optimizer_device cpu \
    train.py --model_name_or_path Qwen/Qwen2.5-7B
```

## Fix safety
Requesting more memory does not change the run. Without the offload, the optimizer states need space on the GPUs.

## References
- deepspeed/ops/adam/cpu_adam.py, deepspeed/runtime/zero/stage3.py (estimate_zero3_model_states_mem_needs)
- Slurm documentation, sbatch: `--mem`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.accelerate_and_deepspeed_memory_settings import line_of_optimizer_offload
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.host_memory_settings_of_model_loads import host_memory_limit_of_command
from truetune.checks.minimum_host_memory_of_run import (
    BYTES_OF_STATES,
    fully_trained_model_of_launch,
    host_memory_gib_to_request,
)
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
    first_set_value,
)
from truetune.checks.rule import CommandRule
from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.parsing.shell_commands import CommandFile, last_option


class OffloadBeyondTheJobsMemory(CommandRule):
    code = "CMD095"
    fault = Fault.HOST_MEMORY_TOO_SMALL
    symptoms = ("out-of-memory",)
    severity = "error"
    stability = "preview"
    what = "launches that put the optimizer on the CPU, in jobs with a known memory limit"

    @staticmethod
    def examined_places(
        file: CommandFile,
    ) -> Iterator[tuple[LaunchFiles, LocatedValue, SettingBeside]]:
        """The places that the rule looks at.

        The launches that put the optimizer on the CPU, in jobs with a known memory limit.
        """
        for launch in find_launches_with_files(file):
            limit = host_memory_limit_of_command(file, launch.command)
            place = _optimizer_offload_setting(launch)
            if limit is not None and place is not None and _runs_on_one_node(launch, file):
                yield launch, place, limit

    def findings(self) -> Iterator[Finding]:
        for launch, place, limit in self.examined_places(self.subject):
            model = fully_trained_model_of_launch(launch)
            if model is None or model.optimizer_states_gib <= float(limit.value):
                continue
            states_gib = model.optimizer_states_gib
            yield self.finding(
                f"the optimizer states of {model.name} need {states_gib:,.0f} GiB of CPU memory"
                f" ({model.parameters:,} weights x {BYTES_OF_STATES} bytes, without gradients), but {limit.text}"
                f" allows {float(limit.value):,.0f} GiB: the kernel kills the process",
                f"request {host_memory_gib_to_request(states_gib):,.0f}G, or remove {place.text.rpartition('.')[2]}"
                " if the states fit on the GPUs",
                cases=[
                    Case(limit.text, file=limit.file, line=limit.line),
                    Case(place.text, file=place.file, line=place.line),
                    self.case_of_command(launch.command, launch.command.text[:300]),
                ],
            )


def _optimizer_offload_setting(launch: LaunchFiles) -> LocatedValue | None:
    """The setting by which a launch puts the states of the optimizer into the machine's memory;
    None where none does.
    """
    option = launch.script_option_value("offload_optimizer_device")
    if option is not None:
        return option if option.value == "cpu" else None
    for document in (launch.deepspeed, launch.accelerate):
        located_value = line_of_optimizer_offload(document) if document is not None else None
        if located_value is not None:
            return located_value
    return None


def _runs_on_one_node(launch: LaunchFiles, file: CommandFile) -> bool:
    """Does the run stand on one node, so that all states are in its memory?"""
    machines = first_set_value(launch.accelerate, ("num_machines",))
    counts = [last_option(launch.command.words, name) for name in ("--num_machines", "--nnodes")]
    if any(count not in (None, "1") for count in counts):
        return False
    if machines is not None and machines.value != 1:
        return False
    return node_count_of_job(file) == 1 or not {"--nodes", "-N"} & file.requests.keys()
