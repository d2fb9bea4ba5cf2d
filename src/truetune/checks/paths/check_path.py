"""Checks one named path: finds what it is, and runs the check of each of its kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from truetune.checks.paths.check_by_kind import CHECK_BY_KIND, check_as_kind
from truetune.checks.paths.check_files_belonging_to_path import check_files_belonging_to_path
from truetune.checks.paths.check_folder import check_folder
from truetune.checks.paths.choose_judged_rows_of_folder import take_rows_of_folder
from truetune.checks.paths.explain_not_judged_paths import (
    REASON_BY_UNJUDGED_KIND,
    not_judged_since_unreadable,
)
from truetune.checks.paths.path_kinds import SOURCE_KINDS, WHOLE_FOLDER_KINDS, kinds_of_path
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.settings.recognise_input_kind import InputKind, title_of_kind
from truetune.settings.stacks.registry import config_readers

CHECKED_KINDS = frozenset((*SOURCE_KINDS, *CHECK_BY_KIND, "data", "encoded", "tokenizer"))


def check_path(path: str, seen: PathsCheck, *, is_alone: bool) -> None:
    """Check one named path. A path of no known kind is not judged if others are named beside it.

    Raises a TruetuneError if it is not there, or if it is named alone and can't be read.
    """
    try:
        kinds = kinds_of_path(path, seen.spec.trained_by)
    except UsageError as error:
        # A folder may be of no kind as a whole and still hold files that are.
        is_folder = Path(path).is_dir()
        if is_folder and check_folder(Path(path), (), seen):
            return
        if is_alone or not Path(path).exists():
            raise
        seen.add_not_judged(not_judged_since_unreadable(path, error, is_named=True))
        return
    _check_path_of_kinds(path, kinds, seen, is_alone=is_alone)


def _check_path_of_kinds(
    path: str, kinds: tuple[InputKind, ...], seen: PathsCheck, *, is_alone: bool
) -> None:
    """Check a path whose kinds are known; raises as `check_path`."""
    if kinds[0] in REASON_BY_UNJUDGED_KIND:
        unjudged = REASON_BY_UNJUDGED_KIND[kinds[0]](path)
        is_named = is_alone or kinds[0] != "deepspeed"
        seen.add_not_judged(replace(unjudged, asked=is_named))
        return
    if CHECKED_KINDS.isdisjoint(kinds) and config_readers().keys().isdisjoint(kinds):
        what = title_of_kind(kinds[0])
        raise UsageError(f"{path}: found {what}, which truetune check can't check")
    if (
        Path(path).is_dir()
        and WHOLE_FOLDER_KINDS.isdisjoint(kinds)
        and check_folder(Path(path), kinds, seen)
    ):
        return
    try:
        _take_rows_and_check_path_and_neighbours(path, kinds, seen)
    except DataError as error:
        # Of data and settings the error is the answer; a text file beside them may be anything.
        if is_alone or not set(kinds) <= {"log", "run"}:
            raise
        seen.add_not_judged(not_judged_since_unreadable(path, error, is_named=True))


def _take_rows_and_check_path_and_neighbours(
    path: str, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> None:
    """Take the rows of a path as data, judge it by each of its kinds, and judge what lies beside
    it.
    """
    if kinds[0] == "encoded":
        seen.data.append(path)
    elif "data" in kinds and kinds[0] in ("data", *SOURCE_KINDS):
        if Path(path).is_dir():
            take_rows_of_folder(Path(path), kinds, seen)
        else:
            seen.data.append(path)
    _check_as_each_kind(path, kinds, seen)
    check_files_belonging_to_path(path, kinds, seen)


def _check_as_each_kind(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Judge a path by the rules on each of its kinds.

    One thing in a folder that can't be read keeps nothing else back. Raises a TruetuneError if
    nothing was judged.
    """
    before, errors = len(seen.subjects), list[TruetuneError]()
    # A folder of notebooks and scripts is linted once: imports between them are followed.
    for kind in dict.fromkeys("source" if kind in SOURCE_KINDS else kind for kind in kinds):
        try:
            check_as_kind(path, kind, seen)
        except TruetuneError as error:
            errors.append(error)
    if errors and (not Path(path).is_dir() or len(seen.subjects) == before):
        raise errors[0]
    unread = [not_judged_since_unreadable(path, error, is_named=True) for error in errors]
    seen.add_not_judged(*unread)
