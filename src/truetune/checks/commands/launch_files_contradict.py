r"""The files that configure a launch contradict each other.

## What it does
Reads the files that a command names: accelerate's configuration, the DeepSpeed file, the settings, and literals in the
script. It compares values that two of them set:
- batch size, accumulation, learning rate, warm-up and precision in the DeepSpeed file with those of the run, and
  `train_batch_size` with the batch of all processes
- accelerate's precision, ZeRO stage, machines and GPUs (`gpu_ids`) with the rest of it and with the nodes of a job
- its FSDP, DeepSpeed and FP8 blocks with the `distributed_type` and precision that decide whether they are read, and
  several processes with `distributed_type: NO`
- the layer class that FSDP is set to wrap with the model's
- for a hand-written training loop, the peak of the DeepSpeed file's scheduler block (0.001 if `warmup_max_lr` is not
  set) with the optimizer's learning rate

"auto" and values from shell variables never contradict anything.

## Why it is bad
The Trainer stops if the DeepSpeed file has another value, after every process has loaded the model. A hand-written loop
does not stop: DeepSpeed's optimizer uses the learning rate of its file, and the one in the command is ignored. FSDP
stops at a class that the model does not have. A block that the `distributed_type` does not ask for is ignored: the run
is plain DDP, and each GPU holds the whole model.

## Example
```bash
accelerate launch --use_fsdp --num_processes 8 --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer \
    train.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct
```

## Use instead
```bash
accelerate launch --use_fsdp --num_processes 8 --fsdp_transformer_layer_cls_to_wrap Qwen2DecoderLayer \
    train.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct
```

## Fix safety
Safe with the Trainer, which replaces "auto" in the DeepSpeed file by its own settings. In a hand-written loop, write
the value that you want.

## References
- transformers/integrations/deepspeed.py (`trainer_config_finalize`), accelerate/utils/dataclasses.py
- FreedomIntelligence/CMB#10 (a block for DeepSpeed under MULTI_GPU); accelerate/commands/launch.py
- huggingface/transformers#12021, shibing624/MedicalGPT#191, hiyouga/LLaMA-Factory#201, tatsu-lab/stanford_alpaca#58
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.compare_deepspeed_with_run import (
    does_deepspeed_replace_optimizer,
    does_deepspeed_replace_schedule,
)
from truetune.checks.faults import Fault
from truetune.checks.find_deepspeed_schedule_rate import peak_rate_of_schedule, positive_rate
from truetune.checks.findings import Case, Finding
from truetune.checks.fsdp_layer_class import find_layer_class, layer_classes_of_other_models
from truetune.checks.job_gpus_and_processes import find_launches
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    LocatedValue,
    find_launches_with_files,
    first_set_value,
    parse_script,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, last_option

OF_DEEPSPEED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("train_micro_batch_size_per_gpu",), "per_device_train_batch_size"),
    (("gradient_accumulation_steps",), "gradient_accumulation_steps"),
    (("optimizer", "params", "lr"), "learning_rate"),
    (("scheduler", "params", "warmup_max_lr"), "learning_rate"),
    (("scheduler", "params", "warmup_num_steps"), "warmup_steps"),
    (("gradient_clipping",), "max_grad_norm"),
)
"""What the Trainer compares: key of the DeepSpeed file, its own name"""
REPLACED = (
    ("scheduler", "lr_scheduler_type", does_deepspeed_replace_schedule),
    ("optimizer", "optim", does_deepspeed_replace_optimizer),
)
"""Block of the DeepSpeed file that wins, the Trainer's option, and whether they differ"""
MODELS = ("model_name_or_path", "model_name", "model_id", "base_model", "model")
HALVES = ("fp16", "bf16")
BLOCKS_OF_MODES = (
    ("fsdp_config", "FSDP", "use_fsdp"),
    ("deepspeed_config", "DEEPSPEED", "use_deepspeed"),
)
"""Block of accelerate's configuration, the distributed_type that has it read, and the option that does too"""
SWITCHES_OF_SEVERAL_PROCESSES = (
    "multi_gpu",
    "multi-gpu",
    "use_fsdp",
    "use_deepspeed",
    "use_megatron_lm",
    "tpu",
    "cpu",
)
"""Options that start as many processes as are asked for, or mean another machine"""
WHOLE_SHARDING = ("FULL_SHARD", "1")
# Chosen to read: two fit a line of a terminal; the cases hold all of them.
MAX_TOLD = 2
"""Contradictions that the message spells out; the cases hold all"""


class _Contradiction(NamedTuple):
    """Two places that say different things."""

    message: str
    remedy: str
    cases: tuple[LocatedValue, ...]
    severity: str = "error"


class LaunchFilesContradict(CommandRule):
    code = "CMD009"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    severity = "error"
    what = "launches"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LaunchFiles]:
        """The places that the rule looks at: the launches."""
        yield from find_launches_with_files(file)

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            contradictions = (
                *_contradictions_with_trainer(launch),
                *_contradictions_of_whole_batch(launch, self.subject),
                *_contradictions_of_rate_in_own_loop(launch),
                *_contradictions_of_schedule_and_optimizer(launch),
                *_contradictions_of_accelerate(launch),
                *_contradictions_of_machines(launch, self.subject),
            )
            for contradiction in contradictions:
                yield self.finding(
                    contradiction.message,
                    contradiction.remedy,
                    severity="error" if contradiction.severity == "error" else "warning",
                    cases=[
                        Case(place.text, file=place.file, line=place.line)
                        for place in contradiction.cases
                    ],
                )


def _contradictions_with_trainer(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions between the DeepSpeed file and the settings of a Trainer."""
    if not _uses_trainer(launch):
        return
    differing = [*_differing_numbers(launch), *_differing_half_precisions(launch)]
    pairs = [pair for pair in differing if not _are_both_judged_by_settings_rule(launch, *pair)]
    yield from _optimizer_or_schedule_replaced_by_file(launch)
    if not pairs:
        return
    file = Path(pairs[0][0].file).name
    texts = [f"{other.text} against {own.text}" for other, own in pairs[:MAX_TOLD]]
    more = f", and {len(pairs) - MAX_TOLD} more" if len(pairs) > MAX_TOLD else ""
    yield _Contradiction(
        f"{file} contradicts the run's settings ({'; '.join(texts)}{more}): the Trainer stops at the start",
        f'write "auto" for {"it" if len(pairs) == 1 else "each of them"} in {file}: the Trainer fills in its own value',
        tuple(place for pair in pairs for place in pair),
    )


def _are_both_judged_by_settings_rule(
    launch: LaunchFiles, other: LocatedValue, own: LocatedValue
) -> bool:
    """Are both values of a settings file and of the DeepSpeed file that it names itself?

    Those are judged by deepspeed-settings-contradict.
    """
    if launch.settings is None or launch.deepspeed is None:
        return False
    names_file_itself = first_set_value(launch.settings, ("deepspeed",)) is not None
    return (
        names_file_itself
        and own.file == launch.settings.path
        and other.file == launch.deepspeed.path
    )


def _optimizer_or_schedule_replaced_by_file(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """A schedule or an optimizer of the command or the script that the DeepSpeed file replaces.

    Those of a settings file, or of a script that names the DeepSpeed file itself, are judged by
    deepspeed-settings-contradict.
    """
    names_file_itself = launch.literal_in_script("deepspeed") is not None
    for block, option, is_replaced in REPLACED:
        other = first_set_value(launch.deepspeed, (block, "type"))
        own = launch.script_option_value(option)
        if own is None and not names_file_itself:
            own = launch.literal_in_script(option)
        if other is None or own is None or not is_replaced(other.value, own.value):
            continue
        file = Path(other.file).name
        yield _Contradiction(
            f"the {block} is {other.value} from {file} instead of {own.value}: the Trainer uses the block in the"
            " DeepSpeed file",
            f"remove the {block} block from {file}",
            (other, own),
            "warning",
        )


def _differing_numbers(launch: LaunchFiles) -> Iterator[tuple[LocatedValue, LocatedValue]]:
    """Numbers of the DeepSpeed settings, each with the other one of the run."""
    for way, name in OF_DEEPSPEED:
        other = first_set_value(launch.deepspeed, way) or first_set_value(
            launch.accelerate, ("deepspeed_config", *way)
        )
        own = launch.effective_value_of_run(name)
        if other is not None and own is not None and _numbers_differ(other.value, own.value):
            yield other, own


def _differing_half_precisions(launch: LaunchFiles) -> Iterator[tuple[LocatedValue, LocatedValue]]:
    """The half precision that the DeepSpeed file enables, with the other one of the run."""
    for half, other in (HALVES, HALVES[::-1]):
        own = launch.enabled_switch_option(half) or launch.effective_value_of_run(half)
        deepspeed_half = first_set_value(launch.deepspeed, (other, "enabled"))
        if (
            own is not None
            and deepspeed_half is not None
            and own.value is True
            and deepspeed_half.value is True
        ):
            yield deepspeed_half, own


def _contradictions_of_whole_batch(
    launch: LaunchFiles, file: CommandFile
) -> Iterator[_Contradiction]:
    """Contradictions between the batch of all processes that the DeepSpeed file fixes and what the
    command makes of it.

    DeepSpeed itself compares its three numbers with the processes; the Trainer compares them with
    its settings first.
    """
    whole = first_set_value(launch.deepspeed, ("train_batch_size",))
    started = _process_count_and_where_it_is_said(launch, file)
    if whole is None or launch.deepspeed is None or started is None:
        return
    has_trainer = _uses_trainer(launch)
    factors = _known_batch_factors(launch, has_trainer)
    sizes = [factor.value for factor in factors]
    if len(sizes) < 2 or not all(type(size) is int for size in (whole.value, *sizes)):
        return
    processes, place = started
    batch = processes * sizes[0] * sizes[1]
    if batch == whole.value:
        return
    name = Path(launch.deepspeed.path).name
    advice = (
        f'write "auto" for train_batch_size in {name} (and for the micro batch and the accumulation)'
        if has_trainer
        else f"remove train_batch_size from {name}, so that DeepSpeed computes it"
    )
    yield _Contradiction(
        f"{name} sets train_batch_size to {whole.value}, but {processes} processes x {sizes[0]} rows x {sizes[1]}"
        f" accumulation steps make {batch}: {'the Trainer' if has_trainer else 'DeepSpeed'} stops at the start",
        f"{advice}; or set it to {batch}",
        (whole, place, *factors),
    )


def _known_batch_factors(launch: LaunchFiles, has_trainer: bool) -> list[LocatedValue]:
    """The micro batch and the accumulation of a launch, those of both that are set."""
    located_values = (
        _batch_factor(launch, way, name, has_trainer) for way, name in OF_DEEPSPEED[:2]
    )
    return [factor for factor in located_values if factor is not None]


def _batch_factor(
    launch: LaunchFiles, way: tuple[str, ...], name: str, has_trainer: bool
) -> LocatedValue | None:
    """The micro batch or the accumulation: what the Trainer's settings say of it, else the DeepSpeed file."""
    own = launch.effective_value_of_run(name) if has_trainer else None
    return own or first_set_value(launch.deepspeed, way)


def _process_count_and_where_it_is_said(
    launch: LaunchFiles, file: CommandFile
) -> tuple[int, LocatedValue] | None:
    """The processes of a launch on all its machines, and where they are said; None where that is not plain."""
    started = next(
        (one for one in find_launches(file) if one.command is launch.command and one.tasks == 1),
        None,
    )
    machines = [
        last_option(launch.command.words, option) or "1" for option in ("--nnodes", "--num-nodes")
    ]
    if started is None or any(count != "1" for count in machines) or "--nodes" in file.requests:
        return None
    place = LocatedValue(started.processes, launch.command_file, launch.command.line, started.said)
    return started.processes * started.machines, place


def _contradictions_of_rate_in_own_loop(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions of a script with its own loop: a rate of the command that DeepSpeed's own
    optimizer never gets.
    """
    other = first_set_value(launch.deepspeed, ("optimizer", "params", "lr"))
    own = launch.script_option_value("lr", "learning_rate")
    if other is None or own is None or launch.deepspeed is None or _uses_trainer(launch):
        return
    if not _numbers_differ(other.value, own.value) or not _leaves_optimizer_to_file(launch):
        return
    file = Path(launch.deepspeed.path).name
    yield _Contradiction(
        f"the learning rate is {other.value:g} from {file} instead of {own.value:g}: deepspeed.initialize gets no"
        " optimizer, and creates one from the file",
        f"set optimizer.params.lr in {file} to {own.value:g}, or pass an optimizer to deepspeed.initialize",
        (other, own),
        "warning",
    )


def _contradictions_of_schedule_and_optimizer(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """A schedule of the DeepSpeed file that sets another rate than the optimizer beside it.

    Settings of a Trainer are judged by deepspeed-schedule-sets-another-rate.
    """
    settings = launch.deepspeed
    schedule_rate = peak_rate_of_schedule(settings.value) if settings is not None else None
    if (
        schedule_rate is None
        or settings is None
        or _uses_trainer(launch)
        or _passes_own_schedule(launch)
    ):
        return
    own = first_set_value(settings, ("optimizer", "params", "lr")) or launch.script_option_value(
        "lr", "learning_rate"
    )
    place = first_set_value(
        settings, ("scheduler", "params", schedule_rate.key)
    ) or first_set_value(settings, ("scheduler", "type"))
    if own is None or place is None:
        return
    rate = positive_rate(own.value)
    if rate is None or not schedule_rate.differs_from(rate):
        return
    yield _Contradiction(
        schedule_rate.describe_effect_on_rate(rate),
        schedule_rate.advise_how_rate_takes_force(rate, Path(settings.path).name),
        (place, own),
    )


def _passes_own_schedule(launch: LaunchFiles) -> bool:
    """Does the script give deepspeed.initialize a schedule? Then it leaves that of the file alone."""
    tree = parse_script(launch.script)
    return tree is None or any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("deepspeed.initialize")
        and any(keyword.arg in ("lr_scheduler", None) for keyword in node.keywords)
        for node in ast.walk(tree)
    )


def _leaves_optimizer_to_file(launch: LaunchFiles) -> bool:
    """Does the script call deepspeed.initialize, and give it neither an optimizer nor settings of its own making?"""
    tree = parse_script(launch.script)
    calls = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("deepspeed.initialize")
    ]
    taken = {"optimizer", "config", "config_params"}
    return bool(calls) and not any(
        len(call.args) > 1 or any(keyword.arg in (*taken, None) for keyword in call.keywords)
        for call in calls
    )


def _uses_trainer(launch: LaunchFiles) -> bool:
    """Does the script use a Trainer, which compares the files?

    One that can't be read does if its command or its settings have an option of the Trainer.
    """
    tree = parse_script(launch.script)
    if tree is None:
        # Only the Trainer has an option of this name, in a command or in a file of settings.
        return launch.effective_value_of_run("per_device_train_batch_size") is not None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return any(name.endswith("Trainer") for name in names)


def _contradictions_of_accelerate(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions of accelerate's configuration with its DeepSpeed file, its GPUs and the model."""
    precision = launch.script_option_value("mixed_precision") or first_set_value(
        launch.accelerate, ("mixed_precision",)
    )
    for half in HALVES:
        enabled = first_set_value(launch.deepspeed, (half, "enabled"))
        is_on = precision is not None and enabled is not None and enabled.value is True
        if is_on and precision is not None and enabled is not None:
            if precision.value in HALVES and precision.value != half:
                yield _Contradiction(
                    f"accelerate has mixed_precision {precision.value}, but the DeepSpeed file enables {half}",
                    f"set mixed_precision to {half}, or enable {precision.value} instead of {half} in the DeepSpeed"
                    " file",
                    (precision, enabled),
                )
    yield from _contradictions_of_unread_blocks(launch)
    yield from _contradictions_of_unused_processes(launch)
    yield from _contradictions_of_zero_stage(launch)
    yield from _contradictions_of_gpu_ids(launch)
    yield from _contradictions_of_accumulation(launch)
    yield from _contradictions_of_layers(launch)


def _contradictions_of_unread_blocks(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Blocks of accelerate's configuration that its other keys leave unread."""
    mode = first_set_value(launch.accelerate, ("distributed_type",))
    for block, wanted, switch in BLOCKS_OF_MODES:
        place = _place_of_block(launch, block)
        named = _distributed_type_name(mode.value) if mode is not None else wanted
        is_asked_for = named == wanted or launch.enabled_switch_option(switch) is not None
        if mode is None or place is None or is_asked_for:
            continue
        yield _Contradiction(
            f"accelerate's {block} is not read, because distributed_type is {named}: the run is"
            f" {'plain DDP' if named == 'MULTI_GPU' else 'not sharded by it'}",
            f"set distributed_type to {wanted}, or remove {block}",
            (place, mode),
            "warning",
        )
    precision = first_set_value(launch.accelerate, ("mixed_precision",))
    fp8 = _place_of_block(launch, "fp8_config")
    if fp8 is not None and precision is not None and precision.value != "fp8":
        yield _Contradiction(
            f"accelerate's fp8_config is not read, because mixed_precision is {precision.value}",
            "set mixed_precision to fp8, or remove fp8_config",
            (fp8, precision),
            "warning",
        )
    yield from _contradictions_of_fsdp_version_2(launch)


def _contradictions_of_unused_processes(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Several processes in a configuration whose distributed_type starts one, and that has no unread block.

    Where it has one, the same distributed_type is reported there.
    """
    if any(_place_of_block(launch, block) is not None for block, _, _ in BLOCKS_OF_MODES):
        return
    mode = first_set_value(launch.accelerate, ("distributed_type",))
    count = first_set_value(launch.accelerate, ("num_processes",))
    is_several = count is not None and isinstance(count.value, int) and count.value > 1
    if (
        mode is None
        or _distributed_type_name(mode.value) != "NO"
        or not is_several
        or count is None
    ):
        return
    if any(
        launch.enabled_switch_option(switch) is not None for switch in SWITCHES_OF_SEVERAL_PROCESSES
    ):
        return
    yield _Contradiction(
        f"num_processes {count.value} has no effect: with distributed_type NO, accelerate starts one process, and"
        " the other GPUs stay idle",
        "set distributed_type to MULTI_GPU, FSDP or DEEPSPEED, or num_processes to 1",
        (count, mode),
        "warning",
    )


def _contradictions_of_fsdp_version_2(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """A strategy of FSDP's first version beside the second one, which has another key for it."""
    version = first_set_value(launch.accelerate, ("fsdp_config", "fsdp_version"))
    strategy = first_set_value(launch.accelerate, ("fsdp_config", "fsdp_sharding_strategy"))
    own = first_set_value(launch.accelerate, ("fsdp_config", "fsdp_reshard_after_forward"))
    if version is None or strategy is None or own is not None or version.value != 2:
        return
    if str(strategy.value).upper() in WHOLE_SHARDING:
        return
    yield _Contradiction(
        f"fsdp_sharding_strategy {strategy.value} is not read: version 2 of FSDP reads"
        " fsdp_reshard_after_forward, which is on by default",
        "remove fsdp_sharding_strategy; to get what SHARD_GRAD_OP did, set fsdp_reshard_after_forward: false",
        (strategy, version),
        "warning",
    )


def _distributed_type_name(value: object) -> str:
    """The name of a distributed_type; YAML reads a bare `NO` as false."""
    return "NO" if value is False else str(value).upper()


def _place_of_block(launch: LaunchFiles, block: str) -> LocatedValue | None:
    """Where accelerate's configuration has a block of settings; None where it has none, or an empty one."""
    document = launch.accelerate
    if document is None or not document.value.get(block):
        return None
    spot = document.position_of_key(block)
    return LocatedValue(block, document.path, spot.line if spot is not None else 1, f"{block}: ...")


def _contradictions_of_gpu_ids(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions between the number of processes and the GPUs that are named for them."""
    named = launch.script_option_value("gpu_ids") or first_set_value(
        launch.accelerate, ("gpu_ids",)
    )
    count = launch.script_option_value("num_processes") or first_set_value(
        launch.accelerate, ("num_processes",)
    )
    machines = first_set_value(launch.accelerate, ("num_machines",))
    if named is None or count is None or str(named.value) == "all":
        return
    # With several machines gpu_ids are those of each, and num_processes those of all.
    if (machines is not None and machines.value != 1) or not isinstance(count.value, int):
        return
    gpus = len(set(str(named.value).replace(" ", "").strip(",").split(",")))
    if count.value == gpus:
        return
    is_more = count.value > gpus
    yield _Contradiction(
        f"{count.value} processes are started on {gpus} GPU{'s' * (gpus != 1)}:"
        f" {'a process has no GPU' if is_more else 'the other GPUs stay idle'}",
        f'set num_processes to {gpus}, or list {count.value} GPUs in gpu_ids (or "all")',
        (named, count),
        "error" if is_more else "warning",
    )


def _contradictions_of_machines(launch: LaunchFiles, file: CommandFile) -> Iterator[_Contradiction]:
    """Contradictions between the machines that accelerate counts on and the nodes that the job asks
    for.
    """
    machines = launch.script_option_value("num_machines") or first_set_value(
        launch.accelerate, ("num_machines",)
    )
    nodes = node_count_of_job(file)
    if machines is None or nodes is None or not isinstance(machines.value, int):
        return
    # A job may give each of its nodes a run of its own: then one machine is meant.
    if machines.value == nodes or machines.value < 2:
        return
    name, line = next(
        (name, file.requests[name][1]) for name in ("--nodes", "-N") if name in file.requests
    )
    located_value = LocatedValue(nodes, file.path, line, f"{name}={nodes}")
    outcome = (
        "the processes on the other nodes get invalid ranks and fail at the start"
        if machines.value < nodes
        else "the start waits for machines that don't exist"
    )
    yield _Contradiction(
        f"the job requests {nodes} nodes, but accelerate expects {machines.value} machines: {outcome}",
        f"set num_machines to {nodes} (and num_processes to the total number of GPUs)",
        (located_value, machines),
    )


def _contradictions_of_zero_stage(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions between the ZeRO stage in accelerate's configuration and that of the file that
    the script is given.
    """
    own = first_set_value(launch.accelerate, ("deepspeed_config", "zero_stage"))
    other = first_set_value(launch.deepspeed, ("zero_optimization", "stage"))
    # A file that accelerate itself names replaces its keys, and accelerate refuses both.
    if own is None or other is None or not _numbers_differ(own.value, other.value):
        return
    yield _Contradiction(
        f"accelerate's configuration sets ZeRO stage {own.value}, but the run's DeepSpeed file sets stage"
        f" {other.value}: only one of them takes effect",
        "in deepspeed_config, only set deepspeed_config_file to the file; or remove deepspeed= from the training"
        " arguments",
        (own, other),
    )


def _contradictions_of_accumulation(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """`Accelerator(gradient_accumulation_steps=8)`, or accelerate's own key, that contradicts
    DeepSpeed's number.
    """
    other = first_set_value(launch.deepspeed, ("gradient_accumulation_steps",))
    own = _accumulation_in_code(launch) or first_set_value(
        launch.accelerate,
        ("gradient_accumulation_steps",),
        ("deepspeed_config", "gradient_accumulation_steps"),
    )
    if (
        other is None
        or own is None
        or _uses_trainer(launch)
        or not _numbers_differ(other.value, own.value)
    ):
        return
    yield _Contradiction(
        f"gradients are accumulated over {other.value} batches, from the DeepSpeed file, instead of {own.value}",
        f'set gradient_accumulation_steps in the DeepSpeed file to {own.value}, or to "auto"',
        (other, own),
        "warning",
    )


def _accumulation_in_code(launch: LaunchFiles) -> LocatedValue | None:
    """The literal that an Accelerator of the script is given; None where there is none."""
    tree = parse_script(launch.script)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Accelerator"):
            for keyword in node.keywords:
                steps = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg == "gradient_accumulation_steps" and isinstance(steps, int):
                    text = f"Accelerator(gradient_accumulation_steps={steps})"
                    return LocatedValue(steps, str(launch.script), keyword.value.lineno, text)
    return None


def _contradictions_of_layers(launch: LaunchFiles) -> Iterator[_Contradiction]:
    """Contradictions between the layers that FSDP wraps and those that the model has."""
    named = first_set_value(
        launch.accelerate, ("fsdp_config", "fsdp_transformer_layer_cls_to_wrap")
    ) or launch.script_option_value("fsdp_transformer_layer_cls_to_wrap")
    model = launch.effective_value_of_run(*MODELS) or _model_loaded_by_script(launch)
    if named is None or model is None or not isinstance(model.value, str):
        return
    own = find_layer_class(model.value, Path(launch.command_file).parent)
    wrong = layer_classes_of_other_models(str(named.value), own) if own is not None else []
    if wrong:
        yield _Contradiction(
            (
                f"FSDP is set to wrap {', '.join(wrong)}, but the layers of {model.value} are {own}: the run stops"
                " at the start"
            ),
            f"set fsdp_transformer_layer_cls_to_wrap to {own}, or remove it",
            (named, model),
        )


def _model_loaded_by_script(launch: LaunchFiles) -> LocatedValue | None:
    """The one model that the script loads by a name that stands in it."""
    tree = parse_script(launch.script)
    names = dict(_names_given_to_from_pretrained(tree)) if tree is not None else {}
    if len(names) != 1:
        return None
    name, line = next(iter(names.items()))
    return LocatedValue(name, str(launch.script), line, f"from_pretrained({name!r})")


def _names_given_to_from_pretrained(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that `from_pretrained` is given, as they stand there or in a variable, with their lines."""
    texts = {
        ast.unparse(target): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("from_pretrained"):
            continue
        argument = node.args[0] if node.args else None
        argument = texts.get(argument.id) if isinstance(argument, ast.Name) else argument
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value, node.lineno


def _numbers_differ(one: object, other: object) -> bool:
    """Are both numbers, and not the same?"""
    numbers = (int, float)
    both = isinstance(one, numbers) and isinstance(other, numbers)
    # A boolean is a number to Python: `true` beside 1 is no contradiction.
    return both and not (isinstance(one, bool) or isinstance(other, bool)) and one != other
