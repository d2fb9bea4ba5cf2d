"""Reads the files beside a log for what the rules on logs need: settings of trainings, caps of
servers, rows, and runs of other logs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from truetune.checks.accelerate_and_deepspeed_memory_settings import memory_settings_in_document
from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_place
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_training_rows
from truetune.checks.describe_cost_of_nccl_variables import (
    NCCL_VARIABLES,
    does_switch_transport_off,
)
from truetune.checks.find_gpus_in_files_beside import read_nvidia_smi_file
from truetune.checks.find_schedule_lengths_beside_log import schedule_lengths_of_file
from truetune.checks.gpu_memory_settings_beside_log import (
    MODEL_FILE,
    float32_weights_of_folder,
    memory_settings_of_commands,
    model_load_and_loop_settings_of_script,
    model_size_and_length_grouping_of_config,
)
from truetune.checks.host_memory_settings_of_model_loads import (
    efficient_loading_off_in_document,
    efficient_loading_off_in_script,
    memory_and_processes_of_job,
    weight_size_of_published_model,
)
from truetune.checks.make_setting_beside_log_from_code import setting_at_code_place
from truetune.checks.minimum_host_memory_of_run import (
    ADAPTER_FILE,
    base_of_saved_adapter,
    loads_in_default_float32,
    optimizer_states_of_config,
    optimizer_states_of_script,
)
from truetune.checks.read_training_script_for_its_settings import read_training_module
from truetune.checks.source.evaluation_builds_graphs import EvaluationBuildsGraphs
from truetune.checks.source.evaluation_keeps_all_logits import (
    MOVED_TO_HOST,
    EvaluationKeepsAllLogits,
)
from truetune.checks.source.evidence.picture_token_counts import (
    find_picture_sizes,
    processors_without_size_limit,
)
from truetune.checks.source.labels_counted_from_padded_side import LabelsCountedFromPaddedSide
from truetune.checks.source.model_loaded_beside_another import ModelLoadedBesideAnother
from truetune.checks.source.outputs_kept_on_the_device import OutputsKeptOnTheDevice
from truetune.checks.source.reference_lacks_the_sft_adapter import ReferenceLacksTheSftAdapter
from truetune.checks.source.trained_in_eval_mode import TrainedInEvalMode
from truetune.checks.trainer_settings_in_own_files import trainer_settings_in_own_file
from truetune.checks.training_settings_in_folder_of_log import lora_adapters_of_files
from truetune.checks.vllm_server_commands import (
    adapters_by_served_name,
    find_vllm_server_commands,
)
from truetune.data.row_text_bytes import text_bytes_of_rows
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import (
    ADAPTERS_AT_ONCE,
    FILLED_TO_LIMIT,
    FROZEN_IN_CODE,
    IMAGE_WITHOUT_VERBS,
    LABELS_OF_PADS,
    LENGTH_LIMIT,
    LOGITS_ON_HOST,
    NOTHING_RESUMED,
    PICTURES_WITHOUT_LIMIT,
    SOFT_PROMPT,
    WARMUP_STEPS,
    FilesBeside,
    RowsBeside,
    RunBeside,
    SettingBeside,
)
from truetune.logs.read_run_log import read_run
from truetune.logs.size_and_speed_of_run_by_log import outline_run
from truetune.parsing.environment_variables_in_files import find_environment_settings
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    is_command_file,
    last_option,
    parse_digits,
    read_command_file,
)
from truetune.settings.config import Config
from truetune.settings.located_document import read_text_of_config_size
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.registry import config_readers
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.notebook_commands import read_notebook_commands
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import extract_configs

MAX_FILES = 60
"""Files that are read beside a log. Chosen, not measured: it bounds the time on a folder of many scripts"""
MAX_SETTINGS_BYTES = 1 << 20
"""Of a file that is looked through for a setting; a larger one holds rows"""
MAX_LOGS = 12
"""Logs that are compared with one another: each is read whole"""
SCRIPT_SUFFIXES = (".py", ".ipynb")
SETTINGS_SUFFIXES = (".yaml", ".yml", ".json")
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
METRICS_FILE = "metrics.csv"
"""What Lightning's CSVLogger writes, in `lightning_logs/version_0` of the folder that it is given"""
METRICS_FOLDERS = ("lightning_logs/*", "*/lightning_logs/*")
GPU_SUFFIXES = (*LOG_SUFFIXES, ".csv")
WORD_FIELDS = ("eval_strategy", "save_strategy", "loss_type")
"""Fields that hold a word"""
PERIODIC_CALLS = (
    ("save_steps", re.compile(r"save|checkpoint|ckpt", re.I)),
    ("eval_steps", re.compile(r"eval|valid|generate|sample", re.I)),
)
"""What a loop does after so many steps, by the names of what it calls then"""
TRAINING_FIELDS = (
    "gradient_checkpointing",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "use_liger_kernel",
    "attn_implementation",
    "max_steps",
    "eval_steps",
    "save_steps",
    "val_size",
    "precompute_ref_log_probs",
    "reference",
    "bf16",
    "fp16",
)
"""Fields of `RunSpec.training` that advice on memory and time depends on"""
ENGINE_SWITCH = "use_vllm"
KEEPING_RULES = (EvaluationKeepsAllLogits, EvaluationBuildsGraphs, OutputsKeptOnTheDevice)
"""Rules on what an evaluation keeps"""
CAP_OPTIONS = (
    ("max_num_seqs", "--max-num-seqs"),
    ("max_running_requests", "--max-running-requests"),
    ("max_batch_size", "--max-batch-size"),
    ("parallel", "--parallel", "-np"),
)
"""A server's cap of requests, and how commands spell it"""
ADAPTER_MAKERS = ("peft.*", "unsloth.*.get_peft_model", "swift.*")
"""Calls of a script that trains an adapter"""
SOFT_PROMPT_MAKERS = (
    "peft.*PromptTuningConfig",
    "peft.PromptEncoderConfig",
    "peft.PrefixTuningConfig",
    "peft.CPTConfig",
)
RESUMING_WORDS = ("resume", "ckpt_path", "load_state", "get_last_checkpoint")
"""One of them stands in each script that resumes from a checkpoint"""
CAP_PROGRAMS = {
    "parallel": ("llama-server", "llama.cpp", "llama_cpp", "server"),
    "max_batch_size": ("text-generation-launcher", "text-generation-inference"),
}
"""Words of which a command must hold one, for options that other programs know too"""
CAP_ARGUMENTS = ("max_num_seqs", "max_running_requests")
CAP_VARIABLES = frozenset(("OLLAMA_NUM_PARALLEL",))
CAP_NAMES = (*(names[0] for names in CAP_OPTIONS), *CAP_VARIABLES)
"""Names of the settings that bound how many requests a server works on"""


def read_settings_files_and_log_runs(files: Sequence[Path], logs: Sequence[Path]) -> FilesBeside:
    """What these files set, and what these logs tell of their runs; what can't be read says nothing."""
    read = files[:MAX_FILES]
    settings = [*chain.from_iterable(map(_settings_of_file, read))]
    settings += chain.from_iterable(map(schedule_lengths_of_file, read))
    rows = chain.from_iterable(map(_training_rows_named_by_file, read))
    gpus = [one for log in logs[:MAX_LOGS] for one in read_nvidia_smi_file(log) if one.total]
    adapters = lora_adapters_of_files(read)
    runs = _runs_of_logs(logs)
    return FilesBeside(tuple(settings), tuple(runs), tuple(rows), tuple(gpus), tuple(adapters))


def _runs_of_logs(logs: Sequence[Path]) -> Iterator[RunBeside]:
    """The runs of the first logs that a program printed, or Lightning wrote."""
    printed = (log for log in logs if log.suffix in LOG_SUFFIXES or log.name == METRICS_FILE)
    for log in islice(printed, MAX_LOGS):
        run = _summary_of_log(log)
        if run is not None:
            yield run


def find_settings_files_and_logs(named: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """(files with settings, logs) among the paths of a check, and in the folders among them."""
    files: list[Path] = []
    for path in named:
        files += _files_of_folder_and_subfolders(path) if path.is_dir() else [path]
        files += _lightning_metrics_below(path) if path.is_dir() else []
    logs = [file for file in files if file.suffix in GPU_SUFFIXES]
    return [file for file in files if _may_hold_settings_by_name(file)], logs


def _lightning_metrics_below(folder: Path) -> list[Path]:
    """The curves that Lightning wrote below a folder, the last versions first."""
    metric_files = [
        path for pattern in METRICS_FOLDERS for path in folder.glob(f"{pattern}/{METRICS_FILE}")
    ]
    return sorted(metric_files, reverse=True)[:MAX_LOGS]


def _files_of_folder_and_subfolders(folder: Path) -> list[Path]:
    """The files of a folder, and of its folders: `logs/`, `conf/`."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    files = [path for path in entries if path.is_file()]
    for child in entries:
        if child.is_dir() and not child.name.startswith("."):
            files += sorted(path for path in child.iterdir() if path.is_file())[:MAX_FILES]
    return files


def _may_hold_settings_by_name(file: Path) -> bool:
    """Is a file, by its name, a script, a file of settings or one of commands?"""
    return file.suffix in (*SCRIPT_SUFFIXES, *SETTINGS_SUFFIXES) or is_command_file(file)


def _settings_of_file(file: Path) -> list[SettingBeside]:
    """What a file sets; nothing where it can't be read, or is none of the kinds that are read."""
    try:
        if file.name == MODEL_FILE:
            return list(float32_weights_of_folder(file))
        if file.suffix in SCRIPT_SUFFIXES:
            return list(_settings_of_script(read_training_module(file)))
        if is_command_file(file):
            commands = read_command_file(file)
            return [
                *_settings_of_commands(commands),
                *memory_and_processes_of_job(commands),
                *memory_settings_of_commands(commands),
            ]
        if file.suffix in SETTINGS_SUFFIXES and file.stat().st_size <= MAX_SETTINGS_BYTES:
            return [
                *_memory_settings_of_launcher(file),
                *trainer_settings_in_own_file(file, TRAINING_FIELDS),
                *_settings_of_training_config(file),
            ]
        return _settings_of_training_config(file)
    except (TruetuneError, OSError, ValueError):
        pass  # who reads the file itself says what is wrong with it
    return []


def _memory_settings_of_launcher(file: Path) -> list[SettingBeside]:
    """What a file of accelerate's or DeepSpeed's says about memory, or settings that hold such a part."""
    text = read_text_of_config_size(file)
    try:
        return [
            *efficient_loading_off_in_document(text, file),
            *memory_settings_in_document(text, file),
        ]
    except (TruetuneError, ValueError):
        return []


def _settings_of_training_config(file: Path) -> list[SettingBeside]:
    """The settings of a training that a file of settings makes; none if the file holds no training."""
    if file.name == ADAPTER_FILE:
        return list(base_of_saved_adapter(file))
    if recognise_kinds(file)[0] not in config_readers():
        return []
    config = read_config(file)
    return [*_settings_of_config_for_advice(config), *optimizer_states_of_config(config)]


def _training_rows_named_by_file(file: Path) -> list[RowsBeside]:
    """The training rows that settings or commands name; nothing for a script, which may do anything with its rows."""
    try:
        if file.suffix in SCRIPT_SUFFIXES:
            return []
        if is_command_file(file):
            configs = list(configs_of_commands_without_settings_file(read_command_file(file)))
        elif recognise_kinds(file)[0] in config_readers():
            configs = [read_config(file)]
        else:
            return []
        return [rows for config in configs if (rows := _rows_of_config(config)) is not None]
    except (TruetuneError, OSError, ValueError):
        return []


def _rows_of_config(config: Config) -> RowsBeside | None:
    """The training rows of one config, if all of its files are here; else None."""
    counted = count_training_rows(config)
    if counted is None or not config.spec.data:
        return None
    is_packed = bool(config.spec.training.packing)
    sizes = text_bytes_of_rows(one for name in config.spec.data for one in local_data_files(name))
    return RowsBeside(
        config.path,
        counted.count,
        counted.why,
        config.spec.data,
        config.limit,
        is_packed,
        max(sizes, default=0) or None if sizes is not None else None,
        sum(sizes) or None if sizes is not None else None,
    )


def _settings_of_config_for_advice(config: Config) -> Iterator[SettingBeside]:
    """The settings of a training on which advice depends, with the lines that set them."""
    training = config.spec.training
    for name in TRAINING_FIELDS:
        value = getattr(training, name)
        place = config.places.get(f"training.{name}")
        if not isinstance(value, bool | int | float | str):
            continue
        if place is not None:
            shown = f"{value:g}" if isinstance(value, float) else value
            yield SettingBeside(name, value, place.file, place.line, f"{place.key}={shown}")
        elif name not in config.raw:
            yield SettingBeside(name, value, config.path, 0, f"{name} is not set ({value})")
    model = config.places.get("model")
    if model is not None and config.spec.model:
        name = config.spec.model
        yield SettingBeside("model", name, model.file, model.line, f"{model.key}={name}")
    yield from _warmup_of_config(config)
    yield from _rollout_engine_of_config(config)
    yield from length_limit_and_row_filling_of_config(config)
    yield from weight_size_of_published_model(config)
    yield from model_size_and_length_grouping_of_config(config)
    for name in WORD_FIELDS:
        place = config.places.get(f"training.{name}")
        value = getattr(training, name)
        if place is not None and isinstance(value, str):
            yield SettingBeside(name, value, place.file, place.line, f"{place.key}={value}")


def _warmup_of_config(config: Config) -> Iterator[SettingBeside]:
    """The steps of a warm-up, where they are set as a number of steps."""
    value, place = config.raw.get(WARMUP_STEPS), config.key_places.get(WARMUP_STEPS)
    if type(value) is int and value > 0 and place is not None:
        yield SettingBeside(WARMUP_STEPS, value, place.file, place.line, f"{WARMUP_STEPS}: {value}")


def _rollout_engine_of_config(config: Config) -> Iterator[SettingBeside]:
    """Whether an engine generates the completions of a reinforcement run of TRL: off where nothing sets it."""
    if config.spec.training.method != "grpo" or config.stack not in ("trl", "transformers"):
        return
    value = config.raw.get(ENGINE_SWITCH, False)
    place = config.key_places.get(ENGINE_SWITCH)
    if not isinstance(value, bool):
        return
    if place is not None:
        yield SettingBeside(ENGINE_SWITCH, value, place.file, place.line, f"{place.key}={value}")
    else:
        yield SettingBeside(
            ENGINE_SWITCH, value, config.path, 0, f"{ENGINE_SWITCH} is not set (False)"
        )


def length_limit_and_row_filling_of_config(config: Config) -> Iterator[SettingBeside]:
    """The length at which a config cuts rows, in tokens, and what fills every row to it: packing,
    or padding to the limit.
    """
    place = config.places.get("max_length")
    if place is None or config.limit is None:
        return
    key = place.key or "max_length"
    yield SettingBeside(LENGTH_LIMIT, config.limit, place.file, place.line, f"{key}={config.limit}")
    if config.spec.training.packing and (packing := config.places.get("training.packing")):
        text = f"{packing.key or 'packing'}: true"
        yield SettingBeside(FILLED_TO_LIMIT, True, packing.file, packing.line, text)
    if config.stack == "axolotl" and config.raw.get("pad_to_sequence_len") is True:
        padding = setting_place(config, "pad_to_sequence_len")
        text = "pad_to_sequence_len: true"
        yield SettingBeside(FILLED_TO_LIMIT, True, padding.file, padding.line, text)


PLAIN_IMAGE = re.compile(
    r"(?:^|/)(?:python|ubuntu|debian|rockylinux|almalinux|fedora|continuumio/\w+|mambaorg/\S+|nvidia/cuda|pytorch/pytorch)"
    r"(?:[:@]|$)"
)
"""Images that hold no library of InfiniBand by themselves; those of NVIDIA's NGC and of clouds do"""
BRINGS_VERBS = re.compile(r"rdma-core|ibverbs|OFED|doca-|mlnx|aws-ofi|/efa", re.I)


def _settings_of_commands(file: CommandFile) -> Iterator[SettingBeside]:
    """What commands give as options: caps of servers, and settings of trainings."""
    for config in configs_of_commands_without_settings_file(file):
        yield from _settings_of_config_for_advice(config)
    for command in file.commands:
        if any(word.endswith(".py") for word in command.words):
            yield from _training_options_of_command(file, command)
        yield from _server_caps_of_command(file, command)
    yield from _max_adapters_per_vllm_batch(file)
    yield from _docker_image_without_infiniband(file)
    for variable in find_environment_settings(file, CAP_VARIABLES | NCCL_VARIABLES):
        text = f"{variable.name}={variable.value}"
        number = parse_digits(variable.value)
        if variable.name in NCCL_VARIABLES and does_switch_transport_off(
            variable.name, variable.value
        ):
            yield SettingBeside(variable.name, True, variable.file, variable.line, text)
        elif variable.name in CAP_VARIABLES and number:
            yield SettingBeside(variable.name, number, variable.file, variable.line, text)


def _docker_image_without_infiniband(file: CommandFile) -> Iterator[SettingBeside]:
    """The image of a Dockerfile that is a plain system, where no line installs the library of InfiniBand."""
    if not PLAIN_IMAGE.search(file.image) or BRINGS_VERBS.search(file.text):
        return
    for number, line in enumerate(file.text.splitlines(), 1):
        if line.lstrip().upper().startswith("FROM ") and file.image in line:
            text = f"FROM {file.image}"
            yield SettingBeside(IMAGE_WITHOUT_VERBS, file.image, file.path, number, text)


def _server_caps_of_command(file: CommandFile, command: ShellCommand) -> Iterator[SettingBeside]:
    """The caps that a command gives a server."""
    for name, *options in CAP_OPTIONS:
        programs = CAP_PROGRAMS.get(name)
        if programs and not any(one in word for word in command.words for one in programs):
            continue
        value = parse_digits(last_option(command.words, *options))
        if value:
            text = f"{options[0]} {value}"
            line = command.line_of(text)
            yield SettingBeside(name, value, file.path, line, text)


def _max_adapters_per_vllm_batch(file: CommandFile) -> Iterator[SettingBeside]:
    """The number of adapters that a batch of vLLM may mix, if it is fewer than the server has: one
    if --max-loras is not given.
    """
    for server in find_vllm_server_commands(file):
        served = len(adapters_by_served_name(server))
        max_loras_option = last_option(server.options, "--max-loras")
        mixed = 1 if max_loras_option is None else parse_digits(max_loras_option)
        if mixed and mixed < served:
            text = f"--max-loras is {mixed}, and {served} adapters are served"
            line = server.command.line_of("--max-loras" if max_loras_option else "--lora-modules")
            yield SettingBeside(ADAPTERS_AT_ONCE, mixed, file.path, line, text)


def _training_options_of_command(
    file: CommandFile, command: ShellCommand
) -> Iterator[SettingBeside]:
    """Settings of a training that a command hands to its script under the Trainer's own names."""
    for name in TRAINING_FIELDS:
        option = last_option(command.words, f"--{name}")
        if option is None:
            continue
        number = parse_digits(option)
        is_switch = option.lower() in ("", "true", "false")
        value = number if number is not None else option.lower() != "false" if is_switch else None
        if value is not None:
            text = f"--{name} {option}".strip()
            yield SettingBeside(name, value, file.path, command.line, text)


def _settings_of_script(module: Module) -> Iterator[SettingBeside]:
    """What a script sets: a trainer's arguments, its own loop, and engines that it starts."""
    configs = extract_configs(module)
    for config in configs:
        yield from _settings_of_config_for_advice(config)
    if not configs and any(module.methods("backward")):
        yield from _checkpointing_and_rows_of_own_loop(module)
    yield from _padding_to_fixed_length(module)
    yield from _processors_without_picture_size_limit(module)
    yield from efficient_loading_off_in_script(module)
    yield from loads_in_default_float32(module)
    yield from optimizer_states_of_script(module, configs)
    yield from _loop_left_in_eval_mode(module)
    yield from _places_choosing_trained_weights(module)
    yield from _places_training_only_soft_prompts(module)
    yield from _trains_without_resuming(module)
    yield from _tensors_kept_on_gpu_by_evaluation(module)
    yield from _labels_counted_from_padding_side(module)
    yield from _loads_of_second_model_beside_held_one(module)
    yield from model_load_and_loop_settings_of_script(module)
    yield from _bare_base_as_reference_of_adapter(module)
    for call in module.all_calls:
        for name in CAP_ARGUMENTS:
            value = module.flow.value(call.keywords.get(name))
            if type(value) is int and value > 0:
                yield setting_at_code_place(module, call.node, name, value, f"{name}={value}")
    commands = read_notebook_commands(module)
    if commands is not None:
        yield from _settings_of_commands(commands)


def _checkpointing_and_rows_of_own_loop(module: Module) -> Iterator[SettingBeside]:
    """Checkpointing and the rows of a loop of the script's own."""
    enabled = next(iter(module.methods("gradient_checkpointing_enable")), None)
    if enabled is not None:
        text = "gradient_checkpointing_enable()"
        yield setting_at_code_place(module, enabled.node, "gradient_checkpointing", True, text)
    elif "checkpoint" not in module.text:
        text = "gradient_checkpointing_enable() is never called"
        yield SettingBeside("gradient_checkpointing", False, module.path, 0, text)
    yield from _evaluation_and_save_periods_of_loop(module)
    for call in module.calls("torch.utils.data.*DataLoader"):
        rows = module.flow.value(call.argument(1, "batch_size"))
        if type(rows) is not int:
            continue
        is_training = module.flow.value(call.keywords.get("shuffle")) is True
        name = f"per_device_{'train' if is_training else 'eval'}_batch_size"
        yield setting_at_code_place(module, call.node, name, rows, f"batch_size={rows}")


def _evaluation_and_save_periods_of_loop(module: Module) -> Iterator[SettingBeside]:
    """After how many steps a loop evaluates or saves: `if step % 50 == 0: evaluate(...)`."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.If):
            continue
        period = _period_in_modulo_test(module, node.test)
        called = " ".join(
            ast.unparse(one.func)
            for statement in node.body
            for one in ast.walk(statement)
            if isinstance(one, ast.Call)
        )
        for name, pattern in PERIODIC_CALLS:
            if period and pattern.search(called):
                text = f"{ast.unparse(node.test)}={period}"
                yield setting_at_code_place(module, node, name, period, text)


def _period_in_modulo_test(module: Module, test: ast.expr) -> int:
    """The number of `step % 50 == 0`; 0 where a test has none that is known."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            value = module.flow.value(node.right)
            return value if type(value) is int and value > 1 else 0
    return 0


def _padding_to_fixed_length(module: Module) -> Iterator[SettingBeside]:
    """Calls that pad rows to a fixed length: to max_length, or without it to the tokenizer's own maximum."""
    for call in module.all_calls:
        pads = module.flow.value(call.keywords.get("padding")) == "max_length"
        limit = module.flow.value(call.keywords.get("max_length"))
        if pads and type(limit) is int and limit > 0:
            yield setting_at_code_place(
                module, call.node, LENGTH_LIMIT, limit, f"max_length={limit}"
            )
            yield setting_at_code_place(
                module, call.node, FILLED_TO_LIMIT, True, 'padding="max_length"'
            )
        if pads and not call.open and "max_length" not in call.keywords:
            text = 'padding="max_length" without max_length'
            yield setting_at_code_place(module, call.node, "padded_without_limit", True, text)


def _processors_without_picture_size_limit(module: Module) -> Iterator[SettingBeside]:
    """Processors that keep the size of pictures, with what a picture of the rows is where that is known."""
    for processor in processors_without_size_limit(module):
        sizes = find_picture_sizes(module, processor.side)
        value = ""
        if sizes is not None:
            value = (
                f"pictures of {sizes.source} have about {sizes.width:,} x {sizes.height:,} pixels, which are"
                f" {sizes.tokens:,} tokens each"
            )
        text = f"the processor of {processor.model} keeps the size of pictures (no max_pixels)"
        yield setting_at_code_place(
            module, processor.call.node, PICTURES_WITHOUT_LIMIT, value, text
        )


def _bare_base_as_reference_of_adapter(module: Module) -> Iterator[SettingBeside]:
    """The places where a script takes the bare base as the reference of a policy that starts from
    an adapter.
    """
    for finding in ReferenceLacksTheSftAdapter(module).findings():
        case = finding.cases[-1]
        yield SettingBeside(
            "reference_without_adapter", True, case.file or module.path, case.line or 0, case.text
        )


def _tensors_kept_on_gpu_by_evaluation(module: Module) -> Iterator[SettingBeside]:
    """The places where an evaluation of the script leaves tensors on the GPU, as the rules on
    source find them.
    """
    for rule in KEEPING_RULES:
        for finding in rule(module).findings():
            for case in finding.cases[:1]:
                on_host = rule is EvaluationKeepsAllLogits and MOVED_TO_HOST in finding.message
                yield SettingBeside(
                    LOGITS_ON_HOST if on_host else "kept_by_evaluation",
                    rule.name(),
                    case.file or module.path,
                    case.line or 0,
                    finding.message,
                )


def _labels_counted_from_padding_side(module: Module) -> Iterator[SettingBeside]:
    """Labels of the script that are counted from the side of the pads."""
    for finding in LabelsCountedFromPaddedSide(module).findings():
        case = finding.cases[0]
        yield SettingBeside(
            LABELS_OF_PADS, finding.message, case.file or module.path, case.line or 0, case.text
        )


def _loads_of_second_model_beside_held_one(module: Module) -> Iterator[SettingBeside]:
    """Loads of a second model while the first one is held on the GPU."""
    for finding in ModelLoadedBesideAnother(module).findings():
        case, rule = finding.cases[0], ModelLoadedBesideAnother.name()
        yield SettingBeside(
            "second_model_loaded", rule, case.file or module.path, case.line or 0, finding.message
        )


def _trains_without_resuming(module: Module) -> Iterator[SettingBeside]:
    """`trainer.train()` of a script that names resume_from_checkpoint, ckpt_path or load_state nowhere."""
    if any(word in module.text for word in RESUMING_WORDS):
        return
    for call in (*module.methods("train"), *module.methods("fit")):
        receiver = module.text_of(call.node.func)
        if "trainer" in receiver.lower() and not call.open:
            yield setting_at_code_place(
                module, call.node, NOTHING_RESUMED, True, f"{receiver}() resumes nothing"
            )


def _places_choosing_trained_weights(module: Module) -> Iterator[SettingBeside]:
    """The places where a script without an adapter chooses by itself which weights of a model are
    trained.
    """
    if any(module.calls(*ADAPTER_MAKERS)):
        return
    for node in module.nodes(ast.Assign):
        (target, *more) = node.targets
        is_switch = isinstance(target, ast.Attribute) and target.attr == "requires_grad"
        if is_switch and not more and module.flow.value(node.value) is not True:
            text = " ".join(ast.unparse(node).split())
            yield setting_at_code_place(module, node, FROZEN_IN_CODE, True, text)
    for call in module.methods("requires_grad_"):
        if call.args and module.flow.value(call.args[0]) is False:
            text = " ".join(ast.unparse(call.node).split())
            yield setting_at_code_place(module, call.node, FROZEN_IN_CODE, True, text)


def _places_training_only_soft_prompts(module: Module) -> Iterator[SettingBeside]:
    """The place where a script trains the vectors of a prompt, and no weight of the model."""
    for call in module.calls(*SOFT_PROMPT_MAKERS):
        text = " ".join(ast.unparse(call.node).split())
        yield setting_at_code_place(module, call.node, SOFT_PROMPT, True, text)


def _loop_left_in_eval_mode(module: Module) -> Iterator[SettingBeside]:
    """A loop that puts its model into eval() mode, and never back."""
    for finding in TrainedInEvalMode(module).findings():
        for case in finding.cases[:1]:
            line = case.line or 0
            yield SettingBeside(
                "left_in_eval_mode", True, case.file or module.path, line, case.text
            )


def _summary_of_log(path: Path) -> RunBeside | None:
    """The parts of a log that findings on another log are compared with; None if it is no log, or
    can't be read.
    """
    try:
        return outline_run(read_run(path))
    except (TruetuneError, OSError, ValueError):
        return None
