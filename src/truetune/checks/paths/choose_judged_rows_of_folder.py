"""Chooses which rows of a folder are judged: its training rows, or those that its scripts train.

What is left out (predictions, rows that a script turns into others, tables of scores) is named in
the report: a folder is named for all that it holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_run_described_by_scripts import find_run_of_scripts
from truetune.checks.judge_token_ids_made_by_script import find_data_files_trained_by_script
from truetune.checks.judgement import NotJudged
from truetune.checks.paths.folder_members import list_user_entries
from truetune.checks.paths.path_kinds import SOURCE_KINDS, holds_only_rows
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.data.tell_training_files_from_predictions import (
    classify_folder_files,
    list_training_files,
)
from truetune.errors import format_name_list
from truetune.settings.recognise_input_kind import MAX_FOLDER_ENTRIES, InputKind
from truetune.settings.run_spec import RunSpec
from truetune.source.find_source_files import find_source_files

ANSWERS = "the answers"
"""Of predictions in a folder: what is not judged here, since it takes another package"""


class _RowsOfScripts(NamedTuple):
    """The rows that the scripts of a folder train."""

    run: RunSpec | None
    """With the limit that the one script sets, where its rows are of a known form; None where the script alone knows
    what they are"""
    files: tuple[str, ...]


def take_rows_of_folder(folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Take as data the rows of a folder, or those elsewhere that its scripts train."""
    trained = _find_rows_trained_elsewhere(folder, kinds, seen)
    if trained is None:
        add_training_rows_of_folder(folder, seen)
    else:
        _take_rows_of_scripts_as_judged_run(trained, seen)
        _report_rows_left_out(folder, seen)


def add_training_rows_of_folder(folder: Path, seen: PathsCheck) -> None:
    """Take the training rows of a folder as data, and report what its other files are.

    Rows that the run beside them does not train are left out: what is said of them would be taken
    for the run's.
    """
    if seen.demo_config:
        unjudged = NotJudged(
            "the rows",
            f"{seen.demo_config} trains others",
            place=str(folder),
            unlock=f"truetune check {folder}",
        )
        seen.add_not_judged(unjudged)
        return
    files = classify_folder_files(folder)
    if files is None:
        seen.data.append(str(folder))
        return
    seen.data += files.training
    for path in files.predictions:
        why = "they are a model's predictions with their references, not training rows"
        unjudged = NotJudged(
            ANSWERS,
            why,
            place=path,
            unlock=f"truetune score {path}",
            asked=not files.training,
        )
        seen.add_not_judged(unjudged)
    if files.origins:
        names = format_name_list([Path(path).name for path in files.origins])
        why = "a script here makes the training rows from them, and those are judged"
        unjudged = NotJudged(f"the rows of {names}", why, place=str(folder), asked=False)
        seen.add_not_judged(unjudged)
    if files.others:
        names = format_name_list([Path(path).name for path in files.others])
        why = (
            f"settings, logs, lists of names, verdicts or raw input of a script, not rows: {names}"
        )
        unjudged = NotJudged("other files", why, place=str(folder), asked=False)
        seen.add_not_judged(unjudged)


def _find_rows_of_training_script(folder: Path, seen: PathsCheck) -> _RowsOfScripts:
    """The rows that the one training script of a folder reads; no file if that is not known."""
    files = sorted(folder.glob("*.py")) if folder.is_dir() else [folder]
    run = find_run_of_scripts(files[:MAX_FOLDER_ENTRIES])
    # Rows that need columns mapped, or are of no known form, would be judged wrongly: the script reads them in its
    # own way.
    if run is not None and all(holds_only_rows(path, seen.spec) for path in run.data):
        return _RowsOfScripts(run, run.data)
    scripts = [str(file) for _, file in find_source_files([str(folder)])]
    return _RowsOfScripts(None, find_data_files_trained_by_script(scripts))


def _find_rows_trained_elsewhere(
    folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> _RowsOfScripts | None:
    """The rows that the scripts of a folder train, if these lie elsewhere and no file in the folder
    holds rows of a known form; else None.

    Such files (answers beside what was expected, a table of scores) would hide the rows that are
    trained.
    """
    if set(SOURCE_KINDS).isdisjoint(kinds) or seen.run is not None or list_training_files(folder):
        return None
    trained = _find_rows_of_training_script(folder, seen)
    own = folder.resolve()
    is_elsewhere = all(Path(file).resolve().parent != own for file in trained.files)
    return trained if trained.files and is_elsewhere else None


def _report_rows_left_out(folder: Path, seen: PathsCheck) -> None:
    """Report which files of a folder hold rows of no known form that its scripts do not train."""
    names = [
        path.name for path in list_user_entries(folder) if holds_only_rows(str(path), seen.spec)
    ]
    if names:
        why = "no format fits their columns, and the scripts here train other files"
        unread = NotJudged(
            f"the rows of {format_name_list(names)}", why, place=str(folder), asked=False
        )
        seen.add_not_judged(unread)


def take_rows_of_scripts(folder: Path, seen: PathsCheck) -> None:
    """Take as data the rows that the one training script of a folder reads, with the limit that it
    sets.
    """
    _take_rows_of_scripts_as_judged_run(_find_rows_of_training_script(folder, seen), seen)


def _take_rows_of_scripts_as_judged_run(trained: _RowsOfScripts, seen: PathsCheck) -> None:
    """Take the rows that scripts train as the run that is judged."""
    if trained.run is None:
        seen.data += trained.files
        seen.rows_of_scripts = bool(seen.data)
        return
    settings = {name: getattr(seen.spec, name) for name in seen.spec.model_fields_set - {"data"}}
    seen.run = trained.run.model_copy(update=settings)
    # A script may build prompts of its own from the rows.
    seen.own_prompt = seen.rows_of_scripts = True
