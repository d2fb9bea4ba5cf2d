"""Checks what belongs to a named path and lies beside it: settings of sources, the last checkpoint
of a run, logs of a model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from truetune.checks.judgement import NotJudged
from truetune.checks.paths.check_by_kind import inspect_checkpoint_folder
from truetune.checks.paths.check_folder import check_member
from truetune.checks.paths.check_log_file import check_notebook_outputs
from truetune.checks.paths.check_settings_file import check_settings_file
from truetune.checks.paths.choose_judged_rows_of_folder import take_rows_of_scripts
from truetune.checks.paths.explain_not_judged_paths import not_judged_since_unreadable
from truetune.checks.paths.folder_members import find_last_checkpoint, list_user_entries
from truetune.checks.paths.path_kinds import (
    MODEL_FOLDER_KINDS,
    SOURCE_KINDS,
    is_model_folder,
    is_settings_file,
    kinds_or_none,
)
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.data.tell_training_files_from_predictions import list_training_files
from truetune.errors import TruetuneError
from truetune.settings.recognise_input_kind import InputKind, is_model_without_weights
from truetune.settings.stacks.registry import config_readers

VOCABULARIES = frozenset(("merges.txt", "vocab.txt"))
WRITTEN_SETTINGS = frozenset(
    ("training_args.yaml", "llamaboard_config.yaml", "axolotl_config.yaml", "truetune.yaml")
)
"""Settings that a program writes into the folder of its run"""


def check_files_belonging_to_path(
    path: str, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> None:
    """Judge what belongs to a path besides: files of its model, settings beside its sources, the
    last checkpoint of a run.
    """
    if "tokenizer" in kinds:
        if is_model_without_weights(Path(path)):
            seen.add(inspect_checkpoint_folder(path, seen))
        seen.tokenizer = seen.tokenizer or path
    if not set(SOURCE_KINDS).isdisjoint(kinds):
        _check_settings_beside_sources(Path(path), seen)
        check_notebook_outputs(Path(path), seen)
        _take_script_rows_if_none_named(Path(path), kinds, seen)
    if kinds[0] == "run" and {"model", "adapter"}.isdisjoint(kinds):
        _check_files_beside_run(Path(path), kinds, seen)
    if kinds[0] in MODEL_FOLDER_KINDS and "run" not in kinds and Path(path).is_dir():
        _check_project_beside_model(Path(path), kinds, seen)


def _check_files_beside_run(path: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Judge what lies beside the state or the log of a run: its last checkpoint, settings and
    commands.
    """
    _check_last_checkpoint(path, seen)
    if _is_project_with_checkpoints(path, kinds):
        _check_settings_and_commands_in(path, seen)
    elif path.is_dir() and set(SOURCE_KINDS).isdisjoint(kinds):
        _check_commands_beside_state(path, seen)
        _check_settings_beside_state(path, seen)


def _check_project_beside_model(
    folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> None:
    """Judge the logs, commands and settings beside the files of a model: who asks for help puts its
    config.json beside the compose file and the log of the server.
    """
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    for path in list_user_entries(folder):
        # A vocabulary is a text file, too.
        if not path.is_file() or path.name in VOCABULARIES:
            continue
        input_kinds = kinds_or_none(path)
        is_wanted = bool(input_kinds) and (
            input_kinds[0] == "log"
            # Sources are judged with the commands and settings beside them.
            or (
                not has_sources
                and (input_kinds[0] == "commands" or input_kinds[0] in config_readers())
            )
        )
        if is_wanted:
            check_member(str(path), input_kinds, seen)


def _take_script_rows_if_none_named(
    path: Path, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> None:
    """Take as data the rows that scripts train, if no rows and no settings were named."""
    # Whoever names a tokenizer for a single script wants its rows counted with it.
    is_asked = not seen.several and seen.spec.tokenizer is not None and path.suffix == ".py"
    if not (path.is_dir() or is_asked) or seen.run is not None:
        return
    if "data" not in kinds:
        take_rows_of_scripts(path, seen)
    elif kinds[0] == "run" and not seen.data:
        # The state or log of the run lies in the project itself, beside its scripts and rows.
        take_rows_of_scripts(path, seen)
        if seen.run is None and not seen.data:
            seen.data += list_training_files(path)


def _check_last_checkpoint(folder: Path, seen: PathsCheck) -> None:
    """Judge the newest checkpoint of a run; one that can't be read is said, and keeps nothing back."""
    last = find_last_checkpoint(folder)
    if last is None:
        return
    if not is_model_folder(last):
        why = "it contains no config.json, adapter_config.json or safetensors file, so its weights are not checked"
        unread = NotJudged("the last checkpoint", why, place=str(last), asked=False)
        seen.add_not_judged(unread)
        return
    try:
        seen.add(inspect_checkpoint_folder(str(last), seen))
    except TruetuneError as error:
        unread = not_judged_since_unreadable(str(last), error, is_named=False)
        seen.add_not_judged(replace(unread, always_told=True))


def _is_project_with_checkpoints(folder: Path, kinds: tuple[InputKind, ...]) -> bool:
    """Is a folder that of a project, with checkpoints beside settings and jobs? A trainer's own
    folder has its state, and scripts are judged with the settings beside them.
    """
    has_state = folder.joinpath("trainer_state.json").is_file()
    return folder.is_dir() and not has_state and set(SOURCE_KINDS).isdisjoint(kinds)


def _check_settings_and_commands_in(folder: Path, seen: PathsCheck) -> None:
    """Judge the files of settings and of commands in a folder."""
    for path in list_user_entries(folder):
        kinds = kinds_or_none(path) if path.is_file() else ()
        if kinds and (kinds[0] in config_readers() or kinds[0] in ("commands", "modelfile")):
            check_member(str(path), kinds, seen)


def _check_commands_beside_state(folder: Path, seen: PathsCheck) -> None:
    """Judge the files of commands beside the state of a run: a job that evaluates it, or that
    started it. Settings in such a folder were written by the trainer.
    """
    for path in list_user_entries(folder):
        kinds = kinds_or_none(path) if path.is_file() else ()
        if kinds and kinds[0] == "commands":
            check_member(str(path), kinds, seen)


def _check_settings_beside_state(folder: Path, seen: PathsCheck) -> None:
    """Judge the settings of a training that lie beside the state of its run, but for the copies
    that programs write.
    """
    for file in list_user_entries(folder):
        if (
            file.suffix in (".yaml", ".yml")
            and file.name not in WRITTEN_SETTINGS
            and is_settings_file(file)
        ):
            check_settings_file(str(file), seen)


def _check_settings_beside_sources(folder: Path, seen: PathsCheck) -> None:
    """Judge the settings that lie beside the sources of a folder; of a single source, none."""
    if not folder.is_dir():
        return
    for file in sorted(folder.glob("*.y*ml")):
        if is_settings_file(file):
            check_settings_file(str(file), seen)
