"""Finds which model a command uses, and whether it is the trained one.

Options, folders and the trainings beside it tell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.commands.evidence.torchtune_runs import TorchtuneRun, torchtune_run_of
from truetune.checks.find_servers_with_base_and_adapter import (
    command_files_of_project,
    shell_commands_of_project,
)
from truetune.checks.find_uses_of_weight_folders import is_same_or_below
from truetune.checks.find_what_scripts_train_and_where import (
    TrainedByScripts,
    canonical_folder_name,
    find_trained_by_scripts,
)
from truetune.checks.findings import Case
from truetune.checks.read_evaluation_harness_commands import find_harness_runs
from truetune.checks.source.evidence.served_model_folders import folders_or_models_by_served_name
from truetune.checks.vllm_server_commands import adapters_by_served_name, find_vllm_server_commands
from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings.release_pins import folders_up_to_project_root
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    read_project_text_cached,
    scripts_commands_and_readmes_around,
)
from truetune.settings.stacks.read_config_of_any_stack import read_config

MODEL_OPTIONS = (
    "--model_name_or_path",
    "--model",
    "--model_name",
    "--model_id",
    "--base_model",
    "--base",
)


OUTPUT_OPTIONS = ("--output_dir", "--output", "--out", "--out_dir", "--save_dir", "--save_path")


TRAINING_SCRIPT = re.compile(r"(?:^|[/_.-])(?:train|sft|dpo|fine_?tune|tune|qlora|lora)\w*\.py$")


TRAINING_PROGRAMS = (
    ("trl", "sft"),
    ("trl", "dpo"),
    ("trl", "kto"),
    ("-m", "trl.scripts.sft"),
    ("-m", "trl.scripts.dpo"),
    ("axolotl", "train"),
    ("-m", "axolotl.cli.train"),
    ("llamafactory-cli", "train"),
    ("swift", "sft"),
    ("swift", "pt"),
    ("swift", "rlhf"),
)
ASKING_COMMANDS_OF_SWIFT = ("infer", "deploy", "eval", "app")
ADAPTER_OPTIONS_OF_SWIFT = ("--adapters", "--ckpt_dir", "--resume_from_checkpoint")


SETTINGS_ENDINGS = (".yml", ".yaml")


LOADED_BY_HARNESS = ("hf", "huggingface", "vllm", "hf-auto")


ADAPTER_ARGUMENTS = ("peft", "delta", "lora_local_path")


RESULTS = re.compile(r"^/(?:eval|result|log|metric|score|prediction|tensorboard|report)\w*|^\.\w+$")
"""What is below a folder of a training, or behind its name, and is no model"""


CONVERTERS = ("convert_hf_to_gguf.py", "convert-hf-to-gguf.py", "convert-hf-to-gguf")


CONVERTER_SWITCHES = (
    "--bigendian",
    "--vocab-only",
    "--use-temp-file",
    "--no-lazy",
    "--verbose",
    "--dry-run",
)
"""Options of the converter without a value"""


ABOUT_THE_BASE = re.compile(
    r"\bbase|base\b|baseline|zero[-_ ]?shot|vanilla|untuned|original|orig\b|before|compare|vs_|_vs|distil|teacher",
    re.I,
)
"""Signs that the base is used on purpose"""


MODEL_WORDS = re.compile(
    r"(?:pretrained|peft|delta|lora_local_path|lora-modules|--lora|--model\w*|--adapter\w*|merge\S*|\.py|serve)"
    r"[ =]\S*\$"
)
"""A model that a variable names"""


WRITING_OPTIONS = re.compile(r"^-+(?:output|out|log|save|results?|o$)")


class TrainingCommand(NamedTuple):
    """A command that trains, with its model and its output folder."""

    command: ShellCommand
    model: str
    output: str


class ModelUse(NamedTuple):
    """A command that evaluates, serves or converts a model."""

    command: ShellCommand
    model: str
    text: str
    remedy: str
    """What names the trained model, with FOLDER for where it is"""

    result: str = "the answers are those of"


def trainings_in_commands(file: CommandFile) -> Iterator[TrainingCommand]:
    """The trainings that commands of a file start."""
    for command in file.commands:
        training = training_started_by_command(command, Path(file.path).parent)
        if training is not None:
            yield training


def only_training_by_commands(path: Path) -> TrainedByScripts | None:
    """The one training that commands of other files of the project start; None where there is none,
    or several.
    """
    trainings = [
        (file, one)
        for file in command_files_of_project(path)
        for one in trainings_in_commands(file)
    ]
    if len({(one.model, one.output) for _, one in trainings}) != 1:
        return None
    file, training = trainings[0]
    if "$" in training.model + training.output:
        return None
    text = training.command.text.strip()
    output = canonical_folder_name(training.output)
    return TrainedByScripts(
        file.path,
        frozenset((canonical_folder_name(training.model),)),
        frozenset((output,)),
        output,
        Case(text, file=file.path, line=training.command.line),
    )


def only_training_by_settings(path: Path) -> TrainedByScripts | None:
    """The one training that a file of settings of the project describes, where its folder holds a model already.

    None where there are several, or where another such file names the folder: it may merge or serve it.
    """
    files = [
        file
        for file in scripts_commands_and_readmes_around(path)
        if file.suffix in SETTINGS_ENDINGS
    ]
    trainings = [one for file in files if (one := _training_of_settings_file(file)) is not None]
    if len(trainings) != 1:
        return None
    training = trainings[0]
    others = (read_project_text_cached(str(file)) for file in files if str(file) != training.path)
    if not _output_holds_model(path, training.best) or any(
        training.best in text for text in others
    ):
        return None
    return training


def _training_of_settings_file(path: Path) -> TrainedByScripts | None:
    """The training that Axolotl or LLaMA-Factory makes of a settings file; None of any other file."""
    try:
        config = read_config(path)
    except (TruetuneError, OSError):
        return None
    is_training = config.stack == "axolotl" or config.raw.get("do_train") is True
    base, output = _model_and_output_in_settings(path) if is_training else ("", "")
    if not base or not output:
        return None
    lines = read_project_text_cached(str(path)).splitlines()
    line = next((number for number, text in enumerate(lines, 1) if output in text), 1)
    case = Case(f"output_dir: {output}", file=str(path), line=line)
    folder = canonical_folder_name(output)
    return TrainedByScripts(
        str(path), frozenset((canonical_folder_name(base),)), frozenset((folder,)), folder, case
    )


def _output_holds_model(path: Path, folder: str) -> bool:
    """Does the output folder of a training stand in the project, with a model or an adapter in it?"""
    return any(
        (root / folder / name).is_file()
        for root in folders_up_to_project_root(path)
        for name in ("adapter_config.json", "config.json")
    )


def only_training_with_unused_output(path: Path) -> TrainedByScripts | None:
    """The one training of the project around a file of commands, where surely no command uses what
    it writes; else None.
    """
    trained = (
        only_training_by_commands(path)
        or find_trained_by_scripts(path)
        or only_training_by_settings(path)
    )
    if trained is None:
        return None
    commands = [
        one
        for one in shell_commands_of_project(path)
        if training_started_by_command(one, path.parent) is None
    ]
    is_used = any(
        uses_output_as_model(one, folder) or torchtune_uses_output(one, path.parent, folder)
        for one in commands
        for folder in trained.outputs
    )
    return None if is_used or any(map(_names_model_by_unknown_variable, commands)) else trained


def _names_model_by_unknown_variable(command: ShellCommand) -> bool:
    """Does a command name a model by a variable that is not known, so that it may use any?"""
    return "$" in command.text and MODEL_WORDS.search(" ".join(command.words)) is not None


def model_uses_without_adapter(file: CommandFile) -> Iterator[ModelUse]:
    """The commands that evaluate, serve or convert a model without an adapter."""
    yield from _evaluations_without_adapter(file)
    for command in file.commands:
        model = _model_converted_to_gguf(command)
        if model:
            yield ModelUse(
                command,
                model,
                command.text.strip(),
                "convert FOLDER: python convert_hf_to_gguf.py FOLDER --outfile ... (merge an adapter first, or"
                " convert it with convert_lora_to_gguf.py)",
                "the file contains the weights of",
            )


def _model_converted_to_gguf(command: ShellCommand) -> str | None:
    """The model that a command converts to GGUF: the first word that is no option and no value of
    one; None where there is none. The converter has no option for it.
    """
    places = [n for n, word in enumerate(command.words) if Path(word).name in CONVERTERS]
    before = ""
    for word in command.words[places[0] + 1 :] if places else ():
        if not word.startswith("-") and (not before.startswith("--") or "=" in before):
            return word
        before = "" if word in CONVERTER_SWITCHES else word
    return None


def output_paths(command: ShellCommand) -> Iterator[str]:
    """Where a command writes, as its words say it."""
    before = ""
    for word in command.words:
        if WRITING_OPTIONS.search(before) or ("=" in word and WRITING_OPTIONS.search(word)):
            yield word
        before = word


def training_started_by_command(command: ShellCommand, folder: Path) -> TrainingCommand | None:
    """The training that a command starts; None where it starts none, or its model or output is not seen."""
    run = torchtune_run_of(command, folder)
    if run is not None and run.trains:
        return _training_by_torchtune(command, run)
    words = _words_behind_training_program(command)
    if words is None:
        return None
    model, output = last_option(words, *MODEL_OPTIONS), last_option(words, *OUTPUT_OPTIONS)
    settings = next((word for word in words if word.endswith(SETTINGS_ENDINGS)), None)
    if settings is not None:
        named = _model_and_output_in_settings(folder / settings)
        model, output = model or named[0], output or named[1]
    return TrainingCommand(command, model, output) if model and output else None


def _training_by_torchtune(command: ShellCommand, run: TorchtuneRun) -> TrainingCommand | None:
    """The training of a recipe; None where it writes into the folder that it starts from, as older ones do."""
    if not run.weights or not run.output or is_same_or_below(run.output, run.weights):
        return None
    return TrainingCommand(command, run.weights, run.output)


def _words_behind_training_program(command: ShellCommand) -> tuple[str, ...] | None:
    """The words that follow the program or the script that trains; None where a command starts no
    training.
    """
    for program in TRAINING_PROGRAMS:
        words = command.words_following(*program)
        if words is not None:
            return words
    places = [n for n, word in enumerate(command.words) if TRAINING_SCRIPT.search(word)]
    return command.words[places[0] + 1 :] if places else None


def _model_and_output_in_settings(path: Path) -> tuple[str, str]:
    """The model and the output folder of a file of settings; empty where it is not there."""
    try:
        config = read_config(path)
    except (TruetuneError, OSError):
        return "", ""
    raw_model = config.raw.get("base_model") or config.raw.get("model_name_or_path")
    return str(raw_model or ""), str(config.raw.get("output_dir") or "")


def _evaluations_without_adapter(file: CommandFile) -> Iterator[ModelUse]:
    """The commands that evaluate or serve a model without an adapter."""
    for run in find_harness_runs(file):
        is_loaded = (last_option(run.options, "--model", "-m") or "") in LOADED_BY_HARNESS
        model = run.model_argument("pretrained")
        adapters = [name for name in ADAPTER_ARGUMENTS if run.model_argument(name) is not None]
        if is_loaded and model and not adapters:
            remedy = f"use pretrained={model},peft=FOLDER for an adapter, or pretrained=FOLDER for a full model"
            yield ModelUse(run.command, model, run.model_with_arguments_as_written, remedy)
    yield from _models_asked_by_torchtune(file)
    yield from _models_asked_by_swift(file)
    for server in find_vllm_server_commands(file):
        if (
            adapters_by_served_name(server)
            or last_option(server.options, "--enable-lora") is not None
        ):
            continue
        text = server.command.text.strip()
        remedy = "serve FOLDER, or for an adapter add --enable-lora --lora-modules tuned=FOLDER"
        for model in folders_or_models_by_served_name(server).values():
            yield ModelUse(server.command, model, text, remedy)


def _models_asked_by_torchtune(file: CommandFile) -> Iterator[ModelUse]:
    """The recipes of torchtune that evaluate a model, or have it answer, without an adapter."""
    for command in file.commands:
        run = torchtune_run_of(command, Path(file.path).parent)
        if (
            run is not None
            and run.does_evaluate_or_generate
            and run.weights
            and not run.has_adapter
        ):
            remedy = "set checkpointer.checkpoint_dir to an epoch's folder in FOLDER, and checkpoint_files to its files"
            yield ModelUse(command, run.weights, command.text.strip(), remedy)


def _models_asked_by_swift(file: CommandFile) -> Iterator[ModelUse]:
    """The commands of ms-swift that ask a model without an adapter."""
    for command in file.commands:
        for kind in ASKING_COMMANDS_OF_SWIFT:
            words = command.words_following("swift", kind) or ()
            model = last_option(words, "--model", "--model_id_or_path")
            if model and last_option(words, *ADAPTER_OPTIONS_OF_SWIFT) is None:
                yield ModelUse(
                    command,
                    model,
                    command.text.strip(),
                    (
                        "add --adapters with a checkpoint in FOLDER, or pass it as --model if all weights were"
                        " trained"
                    ),
                )


def torchtune_uses_output(command: ShellCommand, folder: Path, output: str) -> bool:
    """Does a run of torchtune load what lies in the output folder of a training, as its settings say?"""
    run = torchtune_run_of(command, folder)
    return run is not None and bool(run.weights) and is_same_or_below(run.weights, output)


def uses_output_as_model(command: ShellCommand, output: str) -> bool:
    """Does a command name the output folder of a training, or a model in it, but for what it writes
    there?
    """
    before = ""
    for word in command.words:
        place = word.find(output)
        rest = word[place + len(output) :] if place >= 0 else ""
        is_model = place >= 0 and not RESULTS.search(rest)
        if is_model and not WRITING_OPTIONS.search(before) and not WRITING_OPTIONS.search(word):
            return True
        before = word
    return False
