"""Checks a folder that holds files of several kinds, member by member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from truetune.checks.judgement import NotJudged
from truetune.checks.paths.check_by_kind import CHECK_BY_KIND, lint_sources
from truetune.checks.paths.check_settings_file import check_settings_file
from truetune.checks.paths.choose_judged_rows_of_folder import (
    add_training_rows_of_folder,
    take_rows_of_folder,
    take_rows_of_scripts,
)
from truetune.checks.paths.explain_not_judged_paths import (
    REASON_BY_UNJUDGED_KIND,
    not_judged_since_unreadable,
)
from truetune.checks.paths.folder_members import (
    list_folder_members,
    list_row_folders_below,
    models_below,
)
from truetune.checks.paths.path_kinds import MODEL_BELOW, SOURCE_KINDS
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.unread_training_setting_files import (
    not_judged_unread_settings,
    unread_training_setting_paths,
)
from truetune.errors import TruetuneError, format_name_list
from truetune.settings.recognise_input_kind import InputKind
from truetune.settings.stacks.registry import config_readers

# Chosen, not measured: eight models of eight billion parameters take some seconds at the limit of bytes below.
MAX_MODELS_BELOW = 8
"""Models that are looked at in a folder that holds other things: a store of models is named one by one"""
BYTES_BELOW = 1 << 28
"""Bytes of values that are read of each of them: a second from a disk; who names the model has all of it read"""


def check_folder(folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> bool:
    """Check a folder of files of several kinds, one after another, and report what none of them is.

    Args:
        folder: no run, model or data set of its own.
        kinds: what its files are, as far as `recognise_kinds` tells it of a folder.
        seen: gets what is found.

    Returns:
        Is anything in it that was judged? If not, `seen` gets at most that settings of a training were not read.
    """
    # A folder of `save_to_disk` or of a trainer holds many JSON files, and is one thing.
    if folder.joinpath("state.json").is_file() or folder.joinpath("dataset_dict.json").is_file():
        return False
    members, unread = list_folder_members(folder)
    models = list(models_below(folder))
    members += [(path, MODEL_BELOW) for path in models[:MAX_MODELS_BELOW]]
    rows_below = list_row_folders_below(folder)
    if not members and not rows_below:
        left_out = tuple(
            map(not_judged_unread_settings, unread_training_setting_paths(folder, unread))
        )
        seen.add_not_judged(*left_out)
        return False
    _check_sources_members_and_rows(folder, kinds, members, seen)
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    # Scripts and settings say themselves which rows they train.
    if not has_sources and not seen.data and (seen.run is None or not seen.run.data):
        for path in rows_below:
            add_training_rows_of_folder(path, seen)
    left_out = tuple(_members_left_out(folder, unread, models))
    seen.add_not_judged(*left_out)
    return True


def _check_sources_members_and_rows(
    folder: Path,
    kinds: tuple[InputKind, ...],
    members: Sequence[tuple[Path, tuple[InputKind, ...]]],
    seen: PathsCheck,
) -> None:
    """Check the sources of a folder, then its members; take its rows as data if no settings name
    others.
    """
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    if has_sources:
        seen.add(lint_sources(str(folder), seen))
    for path, path_kind in members:
        # Commands are read with the sources of the folder.
        if path_kind[0] != "commands" or not has_sources:
            check_member(str(path), path_kind, seen)
    if "data" in kinds and (seen.run is None or not seen.run.data):
        take_rows_of_folder(folder, kinds, seen)
    elif has_sources and seen.run is None:
        take_rows_of_scripts(folder, seen)


def check_member(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Check a file or run in a folder; one that can't be read is not judged, and keeps no other
    back.
    """
    try:
        if kinds[0] in REASON_BY_UNJUDGED_KIND:
            unjudged = replace(REASON_BY_UNJUDGED_KIND[kinds[0]](path), asked=False)
            file = Path(path)
            if kinds[0] == "settings" and unread_training_setting_paths(file.parent, [file.name]):
                unjudged = replace(unjudged, always_told=True)
            seen.add_not_judged(unjudged)
        elif kinds == MODEL_BELOW:
            from truetune.checks.inspect_checkpoint import checkpoint_report

            # The budget keeps a folder of large models from taking minutes; a model that is named is read whole.
            seen.add(checkpoint_report(path, base=seen.base, spec=seen.spec, budget=BYTES_BELOW))
        elif kinds[0] in config_readers():
            check_settings_file(path, seen)
        else:
            seen.add(CHECK_BY_KIND[kinds[0]](path, seen))
    except TruetuneError as error:
        unread = not_judged_since_unreadable(path, error, is_named=False)
        # Who keeps a log beside a run thinks that it was read; notes in a text file are no log.
        is_log = kinds[0] in ("log", "run") and Path(path).suffix != ".txt"
        seen.add_not_judged(replace(unread, always_told=is_log))


def _members_left_out(
    folder: Path, unread: Sequence[str], models: Sequence[Path]
) -> Iterator[NotJudged]:
    """What of a folder was left out, as not judged: files of no kind, and models beyond the first."""
    trainings = unread_training_setting_paths(folder, unread)
    yield from map(not_judged_unread_settings, trainings)
    unread = [name for name in unread if str(folder / name) not in trainings]
    if unread:
        why = f"of no kind that truetune reads: {format_name_list(unread)}"
        yield NotJudged("other files", why, place=str(folder), asked=False)
    if len(models) > MAX_MODELS_BELOW:
        why = f"of the models and adapters below, the first {MAX_MODELS_BELOW} were read"
        yield NotJudged("other models", why, place=str(folder), unlock="name them", asked=False)
