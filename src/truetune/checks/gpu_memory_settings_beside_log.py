"""Reads the files beside a log for what fills a GPU besides rows: the model's weights, how they are
loaded, and what steps keep.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_place
from truetune.checks.find_scripts_holding_all_rows import find_held_rows
from truetune.checks.make_setting_beside_log_from_code import setting_at_code_place
from truetune.checks.minimum_host_memory_of_run import parameters_of_published_model
from truetune.checks.source.evidence.trace_answering_models_to_load import BILLIONS_IN_NAME
from truetune.checks.source.evidence.trained_models_spread_over_gpus import (
    spread_load_of_trained_model,
)
from truetune.checks.source.losses_kept_with_graph import LossesKeptWithGraph
from truetune.checks.source.outputs_kept_on_the_device import OutputsKeptOnTheDevice
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import (
    ADAPTER_SLOT_RANK,
    ADAPTER_SLOTS,
    CELL_RUN_AGAIN,
    ENGINE_SHARE,
    HARNESS_ROWS,
    KEPT_BY_STEPS,
    LAYERS_SPREAD,
    MERGES_ADAPTER,
    MODEL_PARAMETERS,
    ROWS_BY_LENGTH,
    ROWS_IN_A_LIST,
    SAVED_IN_FLOAT32,
    SettingBeside,
)
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.parsing.shell_commands import CommandFile, last_option, parse_digits
from truetune.settings.config import Config
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.notebook_code_cells import Cell
from truetune.source.parsed_source_file import Module

BYTES_OF_FLOAT32 = 4
GIB = 1 << 30
LOADS = ("transformers.*.from_pretrained", "peft.AutoPeftModel*.from_pretrained", "unsloth.*")
MODEL_WORDS = ("AutoModel", "ForCausalLM", "ForConditionalGeneration", "FastLanguageModel")
"""Words of which the code of a model's load has one"""
TRAINING_METHODS = ("backward", "train", "fit", "training_step")
HARNESSES = ("lm_eval", "lm-eval", "lighteval")
KEEPING_RULES = (LossesKeptWithGraph, OutputsKeptOnTheDevice)
"""Rules on what a loop keeps of each step"""
MODEL_FILE = "config.json"
SLOT_OPTIONS = ((ADAPTER_SLOTS, "--max-loras"), (ADAPTER_SLOT_RANK, "--max-lora-rank"))


def model_size_and_length_grouping_of_config(config: Config) -> Iterator[SettingBeside]:
    """The size of the model of a run, and whether rows of like length come together."""
    name, place = config.spec.model, config.places.get("model")
    parameters = parameters_of_model_name(name) if name else None
    if name and parameters is not None:
        file, line = (place.file, place.line) if place is not None else (config.path, 0)
        yield SettingBeside(MODEL_PARAMETERS, parameters, file, line, name)
    for key, wanted in (("group_by_length", True), ("train_sampling_strategy", "group_by_length")):
        if config.raw.get(key) == wanted:
            setting_location = setting_place(config, key)
            yield SettingBeside(
                ROWS_BY_LENGTH,
                True,
                setting_location.file,
                setting_location.line,
                f"{setting_location.key or key}={wanted}",
            )


def parameters_of_model_name(name: str) -> int | None:
    """The parameters of a model by its published shape, else by its name (`Qwen3-30B-A3B` has 30 billion)."""
    known = parameters_of_published_model(name)
    sizes = [float(size) for size in BILLIONS_IN_NAME.findall(name.replace("_", "-"))]
    by_name = round(max(sizes) * 1e9) if sizes else None
    return known if known is not None else by_name


def model_load_and_loop_settings_of_script(module: Module) -> Iterator[SettingBeside]:
    """How a script loads its model, and what its loop keeps of each step."""
    spread = spread_load_of_trained_model(module)
    if spread is not None:
        device_map_argument = module.flow.value(spread.keywords.get("device_map"))
        yield setting_at_code_place(
            module, spread.node, LAYERS_SPREAD, True, f'device_map="{device_map_argument}"'
        )
    if not any(any(module.methods(name)) for name in TRAINING_METHODS):
        yield from _base_load_of_merge_script(module)
    for rule in KEEPING_RULES:
        for finding in rule(module).findings():
            for case in finding.cases[:1]:
                file, line = case.file or module.path, case.line or 0
                yield SettingBeside(KEPT_BY_STEPS, rule.name(), file, line, finding.message)
    for held in find_held_rows(module):
        text = "all rows, then a dataset of them" if held.copies else "all rows"
        yield setting_at_code_place(module, held.node, ROWS_IN_A_LIST, held.workers, text)
    yield from _model_loading_cells_run_again(module)


def _base_load_of_merge_script(module: Module) -> Iterator[SettingBeside]:
    """The load of the base in a script that merges an adapter, and trains nothing."""
    if not any(module.methods("merge_and_unload")):
        return
    for call in module.calls(*LOADS):
        if _is_load_of_model(call):
            yield setting_at_code_place(
                module, call.node, MERGES_ADAPTER, True, "merge_and_unload()"
            )
            return


def _is_load_of_model(call: Call) -> bool:
    """Is a call a load of a model, and not of a tokenizer or a config?"""
    text = ast.unparse(call.node.func)
    return any(word in text for word in MODEL_WORDS)


def _model_loading_cells_run_again(module: Module) -> Iterator[SettingBeside]:
    """Cells that load a model, and that the kernel ran last after a cell which stands below them.

    A notebook that is run from top to bottom has counts that rise.
    """
    for call in module.calls(*LOADS) if module.cells else ():
        line = getattr(call.node, "lineno", 0)
        cell = next((one for one in module.cells if one.has_line(line)), None)
        last = None if cell is None else _last_execution_count_of_cells_below(module.cells, cell)
        if cell is not None and last is not None and _is_load_of_model(call):
            text = (
                f"cell {cell.number} ran as [{cell.run_count}], after [{last}] of a cell below it"
            )
            yield setting_at_code_place(module, call.node, CELL_RUN_AGAIN, True, text)


def _last_execution_count_of_cells_below(cells: Sequence[Cell], cell: Cell) -> int | None:
    """The last count, before that of a cell, of the cells that stand below it; None where they ran after it."""
    counts = (one.run_count for one in cells if one.number > cell.number)
    return max(
        (one for one in counts if one is not None and one < (cell.run_count or 0)), default=None
    )


def float32_weights_of_folder(file: Path) -> Iterator[SettingBeside]:
    """The config.json of weights that were saved in float32, with their GiB."""
    if file.name != MODEL_FILE:
        return
    value = read_json(file, SETTINGS)
    if (
        not isinstance(value, dict)
        or str(value.get("dtype") or value.get("torch_dtype")) != "float32"
    ):
        return
    try:
        parameters = parse_architecture(value).parameters
    except TruetuneError:
        return
    size = round(parameters * BYTES_OF_FLOAT32 / GIB, 1)
    yield SettingBeside(SAVED_IN_FLOAT32, size, str(file), 0, f"the model of {file.parent.name}/")


def memory_settings_of_commands(file: CommandFile) -> Iterator[SettingBeside]:
    """What commands give a server of vLLM of the GPU, and the batches of evaluation harnesses."""
    for server in find_vllm_server_commands(file):
        share = _parse_gpu_share(last_option(server.options, "--gpu-memory-utilization"))
        if share is not None:
            line = server.command.line_of("--gpu-memory-utilization")
            text = f"--gpu-memory-utilization {share:g}"
            yield SettingBeside(ENGINE_SHARE, share, file.path, line, text)
        for name, option in SLOT_OPTIONS:
            number = parse_digits(last_option(server.options, option))
            if number:
                line = server.command.line_of(option)
                yield SettingBeside(name, number, file.path, line, f"{option} {number}")
    yield from _batch_sizes_of_harness(file)


def _parse_gpu_share(given: str | None) -> float | None:
    """A share of the GPU; None where it is none, or a variable of the shell."""
    try:
        share = float(given) if given else 0.0
    except ValueError:
        return None
    return share if 0.0 < share <= 1.0 else None


def _batch_sizes_of_harness(file: CommandFile) -> Iterator[SettingBeside]:
    """The batch of the evaluations of a file of commands; the last of those that take the same one."""
    settings_by_size: dict[int, SettingBeside] = {}
    for command in file.commands:
        rows = parse_digits(last_option(command.words, "--batch_size", "--batch-size"))
        if rows and any(name in word for word in command.words[:4] for name in HARNESSES):
            line = command.line_of("--batch_size")
            text = f"--batch_size {rows}"
            settings_by_size[rows] = SettingBeside(HARNESS_ROWS, rows, file.path, line, text)
    yield from settings_by_size.values()
