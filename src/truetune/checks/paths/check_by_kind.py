"""Checks a path by the rules on one kind: sources, commands, logs, models, Modelfiles, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from truetune.checks.paths.check_log_file import check_log_file
from truetune.checks.paths.check_settings_file import check_settings_file
from truetune.checks.paths.folder_members import list_user_entries
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Report
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.recognise_input_kind import InputKind
from truetune.settings.stacks.registry import config_readers


def check_as_kind(path: str, kind: InputKind, seen: PathsCheck) -> None:
    """Judge a path by the rules on one of its kinds, and add the report to `seen`."""
    if kind in config_readers() and (kind != "truetune" or seen.settings is None):
        check_settings_file(path, seen)
    elif kind in CHECK_BY_KIND:
        seen.add(CHECK_BY_KIND[kind](path, seen))


def lint_sources(path: str, seen: PathsCheck) -> Report:
    """What the rules on source say of a path; its scripts are noted as what may train the rows."""
    from truetune.checks.lint import lint

    seen.trainers.sources.append(path)
    for entry in list_user_entries(Path(path)) if Path(path).is_dir() else []:
        if is_command_file(entry):
            seen.trainers.add_commands(entry)
    spec = seen.spec
    return lint(
        [path],
        select=spec.select,
        ignore=spec.ignore,
        rows=seen.rows_beside,
        uses=seen.uses,
        tokenizer=spec.tokenizer,
    )


def _lint_command_file(path: str, seen: PathsCheck) -> Report:
    """What the rules on commands say of a file."""
    from truetune.checks.lint import lint

    seen.trainers.add_commands(Path(path))
    spec = seen.spec
    return lint(
        [path], select=spec.select, ignore=spec.ignore, tokenizer=spec.tokenizer, uses=seen.uses
    )


def inspect_checkpoint_folder(path: str, seen: PathsCheck) -> Report:
    """What the rules on checkpoints say of a folder."""
    from truetune.checks.inspect_checkpoint import checkpoint_report

    return checkpoint_report(path, base=seen.base, spec=seen.spec)


def _inspect_modelfile(path: str, seen: PathsCheck) -> Report:
    """What the rules on Modelfiles say of a file."""
    from truetune.checks.inspect_modelfile import inspect_modelfile

    return inspect_modelfile(path, seen.spec)


CHECK_BY_KIND: Mapping[InputKind, Callable[[str, PathsCheck], Report]] = {
    "source": lint_sources,
    "notebook": lint_sources,
    "commands": _lint_command_file,
    "run": check_log_file,
    "log": check_log_file,
    "model": inspect_checkpoint_folder,
    "model config": inspect_checkpoint_folder,
    "adapter": inspect_checkpoint_folder,
    "modelfile": _inspect_modelfile,
}
