"""Tells which files in a run's folder the run wrote, so that it may replace or remove them.

`data.guard_output_folder` has the rule. The records are run.json (its key and status; `files` once the run has ended;
`writing`, the checkpoint that is being written; `saving`, once the weights of the end are being written) and whole.json
in each checkpoint, which lists its files. transformers chooses the names in a checkpoint that it has not ended, so that
these are told by run.json, which names the checkpoint, and by their names together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_run_and_check_checkpoints import (
    RECORD_FORMAT,
    RUN_FILE,
    WHOLE_FILE,
    digest_file,
    list_checkpoints,
    read_run_written_by_truetune,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.findings_file import is_finding_line
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.guard_output_folder import (
    LOCK_NAME,
    ForeignFile,
    Input,
    ListedFile,
    find_foreign_files,
    is_empty_lock_file,
    is_unchanged_listed_file,
    parse_listing,
    refuse_unsafe_output_folder,
    remove_empty_folders,
    remove_unchanged_listed_files,
)
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.generation.sampling_pass_files import SAMPLE_FILE_NAME, is_sample_file
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.settings.run_spec import RunSpec
from truetune.training.write_extended_tokenizer import is_folder_of_extended_tokenizer

OTHER_FOLDER_HINT = "name another folder with -o"
EXTENDED_TOKENIZER = ".tokenizer"
"""The folder of a tokenizer that tokens were added to"""
# By name and by listing together: the name alone would take a user's own README.md for ours, and
# the listing alone would let a path outside be removed.
FINAL_FILES = re.compile(
    r"(adapter_|pytorch_)?model.*\.(safetensors|bin)(\.index\.json)?|(adapter_|generation_|tokenizer_)?config\.json"
    r"|tokenizer\.(json|model)|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt|spiece\.model"
    r"|chat_template\.(json|jinja)|training_args\.bin|trainer_state\.json|base_fingerprint\.json|README\.md"
)
"""Names of files that a run writes into its folder once it has reached its end"""
CHECKPOINT_FILES = re.compile(
    FINAL_FILES.pattern
    + r"|optimizer.*\.(pt|bin)|scheduler\.pt|scaler\.pt|rng_state.*\.pth|window_\d+\.json|latest"
    r"|zero_to_fp32\.py|.*_states\.pt|__\d+_\d+\.distcp|\.metadata|\.(window_\d+|whole|base_fingerprint)\.json\..*\.part"
)
CHECKPOINT_FOLDERS = re.compile(
    r"(pytorch_model_fsdp|optimizer|global_step|additional_chat_templates|ref|reference|policy).*"
)
"""Names of folders in a checkpoint of several processes, or of a model with more than one adapter"""


def refuse_unsuitable_run_folder(folder: Path, spec: RunSpec) -> None:
    """Raise UsageError where a run must not be written into a folder. Nothing is made there to find out."""
    # The folder may hold none of what the run reads: rotation or a fresh start would remove it.
    refuse_unsafe_output_folder(folder, inputs_of_run(spec))
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise UsageError(f"{folder}: can't be written: it is no folder; {OTHER_FOLDER_HINT}")
        return
    lock, extended = folder / LOCK_NAME, folder / EXTENDED_TOKENIZER
    if os.path.lexists(lock) and not is_empty_lock_file(lock):
        raise UsageError(
            f"{lock}: truetune did not write it; nothing was written: move it elsewhere, or"
            f" {OTHER_FOLDER_HINT}"
        )
    if os.path.lexists(extended) and not is_folder_of_extended_tokenizer(extended):
        raise UsageError(
            f"{extended}: truetune did not write it; nothing was written: move it elsewhere, or"
            f" {OTHER_FOLDER_HINT}"
        )
    if not read_run_written_by_truetune(folder):
        others = sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in (LOCK_NAME, EXTENDED_TOKENIZER)
        )
        if others:
            raise UsageError(
                f"{folder} holds {others[0]} and no {RUN_FILE} that truetune wrote: it is no run of"
                f" truetune's; nothing was written: {OTHER_FOLDER_HINT}"
            )


def inputs_of_run(spec: RunSpec) -> list[Input]:
    """The files and folders that a run reads. What can't be found is left to the error that names
    it later.
    """
    inputs = [
        Input("the tokenizer", path) for path in _local_folder_of_model_or_tokenizer(spec.tokenizer)
    ]
    inputs += [Input("the model", path) for path in _local_folder_of_model_or_tokenizer(spec.model)]
    inputs += [
        Input("the adapter", path)
        for path in _local_folder_of_model_or_tokenizer(spec.training.adapter)
    ]
    if spec.template is not None and Path(spec.template).is_file():
        inputs.append(Input("the chat template", Path(spec.template)))
    for what, names in (("data", spec.data), ("evaluation data", spec.eval_data)):
        inputs += [Input(what, Path(name)) for name in names if "://" not in name]
        try:
            inputs += [Input(what, source.path) for source in find_data_files_of_paths(names)]
        except DataError:
            continue
    return inputs


def _local_folder_of_model_or_tokenizer(name: str | None) -> Iterator[Path]:
    """The folder of a model or tokenizer; nothing where it is not on this machine."""
    try:
        if name is not None:
            yield find_tokenizer_folder(name)
    except TruetuneError:
        return


def find_foreign_file(folder: Path, run: Mapping[str, Any], last: int) -> ForeignFile | None:
    """The first file where a resumed run will write that is not the run's own.

    What is in nobody's way stays as it is, and is none of our business.

    Args:
        folder: of the run.
        run: its run.json.
        last: the step that it continues from; -1 where it begins.

    Returns:
        The first such thing; None where there is nothing.
    """
    listed = parse_listing(run.get("files")) or {}
    # Once the weights of the end are being written, a crash may have left any of them in any
    # state, and no list of them has been written yet.
    saving = run.get("saving") is True
    for path in sorted(folder.iterdir()):
        stranger = _foreign_entry_of_run_folder(path, listed, saving=saving)
        if stranger is not None:
            return stranger
    for path in list_checkpoints(folder):
        # Earlier checkpoints are only read or rotated away, and rotation looks for itself.
        if (step_of_checkpoint_name(path) or 0) <= last:
            continue
        stranger = _foreign_file_in_checkpoint(path, run)
        if stranger is not None:
            return stranger
    return None


def _foreign_entry_of_run_folder(
    path: Path, listed: Mapping[str, ListedFile], *, saving: bool
) -> ForeignFile | None:
    """Judge one entry of the run's folder itself."""
    is_final, is_working = FINAL_FILES.fullmatch(path.name), path.name in WORKING_FILES
    # A link would have the run write, or remove, somewhere else.
    if path.is_symlink() and (step_of_checkpoint_name(path) is not None or is_final or is_working):
        return ForeignFile(path, "is a symbolic link, which truetune did not make")
    if is_final and not saving:
        if path.name not in listed:
            return ForeignFile(path, "truetune did not write it")
        if not is_unchanged_listed_file(path, listed[path.name], digest_file):
            return ForeignFile(path, "is not as truetune wrote it")
    if is_working and not WORKING_FILES[path.name](path):
        return ForeignFile(path, "is not as truetune wrote it")
    return None


def _make_json_key_test(*keys: str) -> Callable[[Path], bool]:
    """A test: is a file a JSON object with these keys?"""

    def is_ours(path: Path) -> bool:
        content = read_json_object(path, [])
        return content is not None and content.keys() >= set(keys)

    return is_ours


def _is_findings_file(path: Path) -> bool:
    """Is each line of a file a finding that a run has written? A crash may have cut the last one."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b"", b""]
    # The piece behind the last line break is empty, or what a crash has cut.
    return all(is_finding_line(line) for line in lines[:-1])


def _is_folder_of_own_samples(path: Path) -> bool:
    """Is each file that a run may replace or remove one that it wrote?"""
    return path.is_dir() and all(
        is_sample_file(one) for one in path.iterdir() if SAMPLE_FILE_NAME.fullmatch(one.name)
    )


WORKING_FILES: dict[str, Callable[[Path], bool]] = {
    "contract.json": _make_json_key_test(
        "format", "truetune", "tokenizer", "special", "stops", "prompts"
    ),
    "watch.json": _make_json_key_test(
        "prompts", "max_new_tokens", "looks", "budget", "share_of_the_time"
    ),
    "findings.jsonl": _is_findings_file,
    "samples": _is_folder_of_own_samples,
    "rollouts": _is_folder_of_own_samples,
}
"""What a run writes while it trains, and how it is known to be a run's"""


def _foreign_file_in_checkpoint(path: Path, run: Mapping[str, Any]) -> ForeignFile | None:
    """What in a checkpoint's folder is not the run's, whether it was ended or not."""
    listed = files_listed_by_checkpoint(path)
    if listed is not None:
        return next(
            find_foreign_files(
                path, listed, digest=digest_file, also_ours=lambda name: name == Path(WHOLE_FILE)
            ),
            None,
        )
    if run.get("writing") != path.name:
        return ForeignFile(path, f"truetune did not write it (it has no {WHOLE_FILE})")

    def also_ours(name: Path) -> bool:
        here = path / name
        named = CHECKPOINT_FILES.fullmatch(name.name) is not None
        return (
            here.is_file()
            and not here.is_symlink()
            and named
            and all(map(CHECKPOINT_FOLDERS.fullmatch, name.parent.parts))
        )

    inside = tuple(
        one.relative_to(path).as_posix()
        for one in path.rglob("*")
        if one.is_dir() and CHECKPOINT_FOLDERS.fullmatch(one.relative_to(path).parts[0])
    )
    return next(find_foreign_files(path, {}, folders=inside, also_ours=also_ours), None)


def files_listed_by_checkpoint(checkpoint: Path) -> dict[str, ListedFile] | None:
    """The files that a checkpoint's whole.json lists; None where it has none that truetune wrote."""
    path = checkpoint / WHOLE_FILE
    mark = None if checkpoint.is_symlink() or path.is_symlink() else read_json_object(path, [])
    return (
        parse_listing(mark.get("files"))
        if mark is not None and mark.get("format") == RECORD_FORMAT
        else None
    )


def remove_checkpoint_and_name_remains(path: Path) -> list[str]:
    """Remove a whole checkpoint. Gives the names of what stays, for whole.json does not list it as it is.

    whole.json goes first: what a crash leaves is then not taken for whole. Raises OSError.
    """
    listed = files_listed_by_checkpoint(path)
    if listed is None:
        return [path.name]
    # First of all: without it, what is left after a crash is unfinished and no checkpoint.
    (path / WHOLE_FILE).unlink()
    remove_unchanged_listed_files(path, listed, digest=digest_file)
    return (
        [one.relative_to(path).as_posix() for one in path.rglob("*") if not one.is_dir()]
        if path.is_dir()
        else []
    )


def remove_unfinished_checkpoint(path: Path) -> None:
    """Remove what there is of a checkpoint that this run was writing. What has no name of a checkpoint's file stays."""
    folders = {path}
    # As a list, because the tree changes while it is walked.
    for one in list(path.rglob("*")):
        name = one.relative_to(path)
        if one.is_symlink() or not all(map(CHECKPOINT_FOLDERS.fullmatch, name.parent.parts)):
            continue
        if one.is_dir():
            folders.add(one)
        elif CHECKPOINT_FILES.fullmatch(name.name):
            one.unlink()
    remove_empty_folders(folders)


def first_free_path(path: Path) -> Path:
    """A path like this one that nothing has."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
