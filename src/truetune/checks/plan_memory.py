"""Plans the GPU memory of a run: reads the run from settings, a script or a model alone, and hands
it to the memory planner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from truetune.checks.do_packing_or_padding_fill_rows_to_limit import (
    FilledRows,
    find_what_fills_rows,
)
from truetune.checks.find_how_launch_distributes_training import find_only_launched_training
from truetune.checks.log.run_ended_in_an_exception import OUT_OF_MEMORY
from truetune.checks.read_training_script_for_its_settings import read_training_module
from truetune.checks.source.evidence.config_objects_given_to_nothing import (
    settings_given_to_nothing,
)
from truetune.checks.source.evidence.length_that_rows_are_cut_or_padded_to import (
    longest_row_after_cut_or_pad,
)
from truetune.checks.source.evidence.training_rows_padded_to_fixed_length import (
    estimate_median_and_longest_tokens,
    fixed_paddings,
)
from truetune.checks.source.evidence.unused_models_held_while_loading_another import (
    second_loads_beside_unused_models,
)
from truetune.checks.source.kbit_preparation_of_plain_weights import kbit_preparations_and_loads
from truetune.checks.source.model_loaded_beside_another import (
    join_names,
    place_in_file,
    second_model_gb,
)
from truetune.errors import DataError, UsageError
from truetune.logs.console.explain_out_of_memory_with_advice import LEAST_LIMIT
from truetune.logs.console.out_of_memory_message import MemoryFigures, parse_memory_error
from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.read_run_log import read_run
from truetune.memory.estimate_memory import GIB
from truetune.memory.plan_memory import Plan
from truetune.memory.plan_memory import plan_memory as plan_of
from truetune.parsing.shell_commands import read_command_file
from truetune.settings.config import Config
from truetune.settings.read_truetune_settings import merge_settings, validate_settings
from truetune.settings.recognise_input_kind import recognise_kinds, title_of_kind
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.registry import config_readers
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.parsed_source_file import Module, read_module
from truetune.source.settings_of_script_as_configs import (
    extract_config_of_own_loop,
    extract_configs,
    find_only_plainly_named_model,
)

ADAPTER = "adapter_config.json"
CAST = "prepare_model_for_kbit_training casts the weights to float32: the model is loaded without a quantization"
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
MAX_LOGS = 12
"""Logs beside settings that are read. Chosen, not measured: the last run is what matters, and each is read whole"""
END_BYTES = 1 << 18
"""The end of a file, where the traceback of a run stands that ended: a corpus of gigabytes is not read for it"""
MEMORY_WORDS = re.compile(rb"out of memory|OutOfMemory", re.IGNORECASE)


def config_with_changed_training(
    path: str | PathLike[str], training: Mapping[str, Any] | None = None
) -> Config:
    """The run that stands at a path, with some of its training settings changed.

    Raises UsageError where there is none, SpecError where it can't be read.
    """
    config = _config_of_path(fspath(path))
    changed = merge_settings(config.spec.training.model_dump(), training or {})
    spec = validate_settings({"training": changed}, "--set")
    return replace(config, spec=config.spec.model_copy(update={"training": spec.training}))


def plan(
    path: str | PathLike[str],
    *,
    training: Mapping[str, Any] | None = None,
    model: str | PathLike[str] | None = None,
    gpu_memory: str | float | None = None,
    gpus: int | None = None,
    length: int | None = None,
) -> Plan:
    """The memory of the run at a path; see `truetune.plan`."""
    return plan_of_config(
        config_with_changed_training(path, training),
        model=None if model is None else fspath(model),
        gpu_memory=gpu_memory,
        gpus=gpus,
        length=length,
    )


def plan_of_config(
    config: Config,
    *,
    model: str | None = None,
    gpu_memory: str | float | None = None,
    gpus: int | None = None,
    length: int | None = None,
) -> Plan:
    """The memory of a run, with what fills its rows; see `truetune.plan`."""
    filled = (
        None
        if length
        else find_what_fills_rows(config) or _note_and_need_of_overpadding_script(config)
    )
    if filled is not None:
        config = replace(config, notes=(*config.notes, filled.note))
    config = replace(config, notes=(*config.notes, *_note_on_memory_error_beside(config)))
    return plan_of(
        config,
        model=model,
        gpu_memory=gpu_memory,
        gpus=gpus,
        length=length,
        needed_length=0 if filled is None else filled.needed,
    )


def _note_and_need_of_overpadding_script(config: Config) -> FilledRows | None:
    """A note on the length that a script pads its rows to, and the tokens that they need, if the rows lie beside it and
    are far shorter; None elsewhere.
    """
    path = Path(config.path)
    if path.suffix not in (".py", ".ipynb") or not path.is_file():
        return None
    module = read_module(path)
    for padding in fixed_paddings(module):
        if padding.length is None or padding.rows is None:
            continue
        median, longest = estimate_median_and_longest_tokens(padding.rows)
        if padding.length < 2 * longest:
            continue
        place = place_in_file(module, padding.node, module.place(padding.node)[0])
        note = (
            f"{place} pads each row to {padding.length:,} tokens; those of {padding.rows.source} have about {median:,}"
            f" (the longest {longest:,}): leave padding out there, and let the collator pad to the longest of a batch"
        )
        needed = max(LEAST_LIMIT, 1 << max(longest - 1, 0).bit_length())
        return FilledRows(note, needed)
    return None


def _config_of_path(path: str) -> Config:
    """The run that a path describes. Raises UsageError where it describes none."""
    # An adapter's folder may hold a copy of the base's config.json.
    if Path(path).name == "config.json" or (
        Path(path, "config.json").is_file() and not Path(path, ADAPTER).exists()
    ):
        return _config_of_model(path)
    kinds = recognise_kinds(path)
    if kinds[0] in ("model", "tokenizer"):
        return _config_of_model(path)
    if kinds[0] in ("source", "notebook"):
        config = _config_of_script(Path(path)) if Path(path).is_file() else None
        if config is not None:
            return config
        raise UsageError(
            f"{path}: no arguments of a trainer are in it; name settings, or a model folder"
        )
    if kinds[0] in config_readers():
        return read_config(path)
    if kinds[0] == "commands":
        of_command = next(
            configs_of_commands_without_settings_file(read_command_file(Path(path))), None
        )
        if of_command is not None:
            return of_command
    raise UsageError(
        f"{path}: is {title_of_kind(kinds[0])}; a plan needs settings, a script, or a model folder"
    )


def _config_of_script(path: Path) -> Config | None:
    """The run of a script: of its trainer's arguments, else of its own loop; None where it trains nothing."""
    # The first of several: a script that trains twice needs the memory of one run at a time.
    module = read_training_module(path)
    config = next(iter(extract_configs(module)), None) or extract_config_of_own_loop(module)
    if config is None:
        return None
    if config.spec.model is None:
        config = replace(
            config,
            spec=config.spec.model_copy(update={"model": find_only_plainly_named_model(module)}),
        )
    if config.limit is None and config.spec.max_length is None:
        length = longest_row_after_cut_or_pad(module)
        spec = config.spec.model_copy(update={"max_length": length})
        config = replace(config, spec=spec) if length is not None else config
    config = _with_launch_of_script(config, path)
    # A quantized load is cast by that function too; only without one are all weights four bytes.
    if next(kbit_preparations_and_loads(module), None) is not None:
        training = config.spec.training.model_copy(update={"dtype": "float32"})
        config = replace(
            config,
            spec=config.spec.model_copy(update={"training": training}),
            notes=(*config.notes, CAST),
        )
    config = _with_note_on_unused_adapter(config, module)
    return replace(
        config,
        notes=(
            *config.notes,
            *_notes_on_second_models(module),
            *_note_on_memory_error_of_notebook(path),
        ),
    )


def _with_note_on_unused_adapter(config: Config, module: Module) -> Config:
    """The run with a note, where its script makes a LoraConfig that nothing is given: then all weights are trained."""
    left = next((one for one in settings_given_to_nothing(module) if one.kind.is_adapter), None)
    if left is None or config.spec.training.lora is not None:
        return config
    place = place_in_file(module, left.made.node, module.place(left.made.node)[0])
    given = f"peft_config={left.variable}"
    use = given if left.takes_it else f"model = get_peft_model(model, {left.variable})"
    note = (
        f"the {left.name} of {place} is never passed on: {left.effect}; pass it on ({use}), or remove it (truetune"
        f" lint {Path(module.path).name})"
    )
    return replace(config, unused_adapter=use, notes=(*config.notes, note))


def _with_launch_of_script(config: Config, path: Path) -> Config:
    """The run with the processes, the sharding and the offload of the launch beside its script."""
    launched = find_only_launched_training(path) if config.spec.training.devices == 1 else None
    if launched is None:
        return config
    return replace(
        config, spec=launched.apply_to_run(config.spec), notes=(*config.notes, launched.note)
    )


def _notes_on_second_models(module: Module) -> Iterator[str]:
    """A note for each second model that the script loads while it holds the first: the plan has no
    column for it.
    """
    for one in second_loads_beside_unused_models(module):
        size = second_model_gb(module, one)
        line, _ = module.place(one.second.node)
        weights = "" if size is None else f" of {size * 1e9 / GIB:.1f} GiB"
        place = place_in_file(module, one.second.node, line)
        holds = "holds" if len(set(one.names)) == 1 else "hold"
        yield (
            f"not in the table: {place} loads a second model{weights} onto the GPU, while {join_names(one.names)} still"
            f" {holds} the first one; free it before (truetune lint {Path(module.path).name}), or load to the CPU"
        )


def _note_on_memory_error_of_notebook(path: Path) -> Iterator[str]:
    """A note, where a notebook's own output ends in an out-of-memory error: then no estimate shows that it fits."""
    if path.suffix != ".ipynb":
        return
    try:
        output = read_run(path).output
    except DataError:
        return
    error = _memory_error_of(output)
    if error is None:
        return
    size = f" on a GPU of {error.capacity:.1f} GiB" if error.capacity else ""
    yield (
        f"the notebook's own output ends in an out-of-memory error{size}: whatever the estimate says, what ran then did"
        f" not fit (truetune diagnose {path.name})"
    )


def _note_on_memory_error_beside(config: Config) -> Iterator[str]:
    """A note, where a log in the folder of the settings ends in an out-of-memory error of a training."""
    path = Path(config.path)
    if path.suffix == ".ipynb" or not path.is_file():
        return
    for log in _logs_that_may_end_out_of_memory(path.parent):
        try:
            run = read_run(log)
        except DataError:
            continue
        error = None if run.inference_server_name else _memory_error_of(run.output)
        if error is not None:
            size = f" on a GPU of {error.capacity:.1f} GiB" if error.capacity else ""
            yield (
                f"{log.name} beside it ends in an out-of-memory error{size}: if it ran with these settings, they do not"
                f" fit, whatever the estimate says (truetune diagnose {log.name})"
            )
            return


def _logs_that_may_end_out_of_memory(folder: Path) -> list[Path]:
    """The logs in a folder whose last bytes speak of memory."""
    try:
        files = sorted(one for one in folder.iterdir() if one.suffix in LOG_SUFFIXES)
    except OSError:
        return []
    return [one for one in files if one.is_file() and _does_file_end_with_out_of_memory(one)][
        :MAX_LOGS
    ]


def _does_file_end_with_out_of_memory(file: Path) -> bool:
    """Do the last bytes of a file speak of memory that ran out?"""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - END_BYTES))
            return MEMORY_WORDS.search(stream.read(END_BYTES)) is not None
    except OSError:
        return False


def _memory_error_of(output: ConsoleOutput | None) -> MemoryFigures | None:
    """The figures of the out-of-memory error that an output ends in; None where it ends in none."""
    failure = output.failure if output is not None else None
    if failure is None or failure.message is None or failure.message.name != OUT_OF_MEMORY:
        return None
    return parse_memory_error(failure.raised.text)


def _config_of_model(path: str) -> Config:
    """A run of a model alone, without settings."""
    return Config(stack="transformers", version="", path=path, spec=RunSpec(model=path))
