"""Run files: which files in the folder of a run are the run's, so that it may replace or remove them.

`data.output_folder` has the rule. The records are run.json (its key and status; `files` once the run has ended;
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

from truetune.checkpoint.run_folder import (
    RECORD_FORMAT,
    RUN_FILE,
    WHOLE_FILE,
    checkpoint_step,
    digest_file,
    list_checkpoints,
    read_own_run,
)
from truetune.checkpoint.weight_files import read_object
from truetune.data.files import find_sources
from truetune.data.output_folder import (
    LOCK_NAME,
    Input,
    Listed,
    Stranger,
    check_output_folder,
    find_strangers,
    is_listed_file,
    is_our_lock,
    listing_from,
    remove_empty_folders,
    remove_listed_files,
)
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.render.tokenizer_folder import locate
from truetune.spec.run import RunSpec
from truetune.training.added import is_our_tokenizer
from truetune.training.watch.store import NAMED, is_finding, is_look

ELSEWHERE = "name another folder with -o"
EXTENDED = ".tokenizer"
"""The folder of a tokenizer that tokens were added to"""
OF_THE_END = re.compile(
    r"(adapter_|pytorch_)?model.*\.(safetensors|bin)(\.index\.json)?|(adapter_|generation_|tokenizer_)?config\.json"
    r"|tokenizer\.(json|model)|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt|spiece\.model"
    r"|chat_template\.(json|jinja)|training_args\.bin|trainer_state\.json|base_fingerprint\.json|README\.md"
)
"""Names of files that a run writes into its folder once it has reached its end"""
OF_A_CHECKPOINT = re.compile(
    OF_THE_END.pattern
    + r"|optimizer.*\.(pt|bin)|scheduler\.pt|scaler\.pt|rng_state.*\.pth|window_\d+\.json|latest"
    r"|zero_to_fp32\.py|.*_states\.pt|__\d+_\d+\.distcp|\.metadata|\.(window_\d+|whole|base_fingerprint)\.json\..*\.part"
)
FOLDERS = re.compile(
    r"(pytorch_model_fsdp|optimizer|global_step|additional_chat_templates|ref|reference|policy).*"
)
"""Names of folders in a checkpoint of several processes, or of a model with more than one adapter"""


def check_run_folder(folder: Path, spec: RunSpec) -> None:
    """Raise UsageError where a run must not be written into a folder. Nothing is made there to find out."""
    check_output_folder(folder, inputs_of_run(spec))
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise UsageError(f"{folder}: can't be written: it is no folder; {ELSEWHERE}")
        return
    lock, extended = folder / LOCK_NAME, folder / EXTENDED
    if os.path.lexists(lock) and not is_our_lock(lock):
        raise UsageError(
            f"{lock}: truetune did not write it; nothing was written: move it elsewhere, or"
            f" {ELSEWHERE}"
        )
    if os.path.lexists(extended) and not is_our_tokenizer(extended):
        raise UsageError(
            f"{extended}: truetune did not write it; nothing was written: move it elsewhere, or"
            f" {ELSEWHERE}"
        )
    if not read_own_run(folder):
        others = sorted(
            path.name for path in folder.iterdir() if path.name not in (LOCK_NAME, EXTENDED)
        )
        if others:
            raise UsageError(
                f"{folder} holds {others[0]} and no {RUN_FILE} that truetune wrote: it is no run of"
                f" truetune's; nothing was written: {ELSEWHERE}"
            )


def inputs_of_run(spec: RunSpec) -> list[Input]:
    """What a run reads. What can't be found is left to the error that names it later."""
    found = [Input("the tokenizer", path) for path in _located(spec.tokenizer)]
    found += [Input("the model", path) for path in _located(spec.model)]
    found += [Input("the adapter", path) for path in _located(spec.training.adapter)]
    if spec.template is not None and Path(spec.template).is_file():
        found.append(Input("the chat template", Path(spec.template)))
    for what, names in (("data", spec.data), ("evaluation data", spec.eval_data)):
        found += [Input(what, Path(name)) for name in names if "://" not in name]
        try:
            found += [Input(what, source.path) for source in find_sources(names)]
        except DataError:
            continue
    return found


def _located(name: str | None) -> Iterator[Path]:
    try:
        if name is not None:
            yield locate(name)
    except TruetuneError:
        return


def stranger_in_the_way(folder: Path, run: Mapping[str, Any], last: int) -> Stranger | None:
    """What stands where a run that goes on will write, and is not the run's; None where there is nothing.

    `last` is the step that it goes on from. What is in nobody's way stays as it is, and is none of our business.
    """
    listed = listing_from(run.get("files")) or {}
    saving = run.get("saving") is True
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and (
            checkpoint_step(path) is not None
            or OF_THE_END.fullmatch(path.name)
            or path.name in WORKING
        ):
            return Stranger(path, "is a symbolic link, which truetune did not make")
        if OF_THE_END.fullmatch(path.name) and not saving:
            if path.name not in listed:
                return Stranger(path, "truetune did not write it")
            if not is_listed_file(path, listed[path.name], digest_file):
                return Stranger(path, "is not as truetune wrote it")
        if path.name in WORKING and not WORKING[path.name](path):
            return Stranger(path, "is not as truetune wrote it")
    for path in list_checkpoints(folder):
        step = checkpoint_step(path) or 0
        if step > last and (stranger := _stranger_in_checkpoint(path, run)) is not None:
            return stranger
    return None


def _has_keys(*keys: str) -> Callable[[Path], bool]:
    def is_ours(path: Path) -> bool:
        found = read_object(path, [])
        return found is not None and found.keys() >= set(keys)

    return is_ours


def _are_findings(path: Path) -> bool:
    """Is each line one that a run has written? A crash may have cut the last one."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b"", b""]
    return all(is_finding(line) for line in lines[:-1])


def _are_samples(path: Path) -> bool:
    """Is each file that a run may replace or remove one that it wrote?"""
    return path.is_dir() and all(
        is_look(one) for one in path.iterdir() if NAMED.fullmatch(one.name)
    )


WORKING: dict[str, Callable[[Path], bool]] = {
    "contract.json": _has_keys("format", "truetune", "tokenizer", "special", "stops", "prompts"),
    "watch.json": _has_keys("prompts", "max_new_tokens", "looks", "budget", "share_of_the_time"),
    "findings.jsonl": _are_findings,
    "samples": _are_samples,
}
"""What a run writes while it goes on, and how it is known to be a run's"""


def _stranger_in_checkpoint(path: Path, run: Mapping[str, Any]) -> Stranger | None:
    listed = listed_files(path)
    if listed is not None:
        return next(
            find_strangers(
                path, listed, digest=digest_file, also_ours=lambda name: name == Path(WHOLE_FILE)
            ),
            None,
        )
    if run.get("writing") != path.name:
        return Stranger(path, f"truetune did not write it (it has no {WHOLE_FILE})")

    def also_ours(name: Path) -> bool:
        here = path / name
        named = OF_A_CHECKPOINT.fullmatch(name.name) is not None
        return (
            here.is_file()
            and not here.is_symlink()
            and named
            and all(map(FOLDERS.fullmatch, name.parent.parts))
        )

    inside = tuple(
        one.relative_to(path).as_posix()
        for one in path.rglob("*")
        if one.is_dir() and FOLDERS.fullmatch(one.relative_to(path).parts[0])
    )
    return next(find_strangers(path, {}, folders=inside, also_ours=also_ours), None)


def listed_files(checkpoint: Path) -> dict[str, Listed] | None:
    """The files that a checkpoint's whole.json lists; None where it has none that truetune wrote."""
    path = checkpoint / WHOLE_FILE
    mark = None if checkpoint.is_symlink() or path.is_symlink() else read_object(path, [])
    return (
        listing_from(mark.get("files"))
        if mark is not None and mark.get("format") == RECORD_FORMAT
        else None
    )


def remove_checkpoint(path: Path) -> list[str]:
    """Remove a whole checkpoint. Gives the names of what stays, for whole.json does not list it as it is.

    whole.json goes first: what a crash leaves is then not taken for whole. Raises OSError.
    """
    listed = listed_files(path)
    if listed is None:
        return [path.name]
    (path / WHOLE_FILE).unlink()
    remove_listed_files(path, listed, digest=digest_file)
    return (
        [one.relative_to(path).as_posix() for one in path.rglob("*") if not one.is_dir()]
        if path.is_dir()
        else []
    )


def remove_unfinished(path: Path) -> None:
    """Remove what there is of a checkpoint that this run was writing. What has no name of a checkpoint's file stays."""
    folders = {path}
    for one in list(path.rglob("*")):
        name = one.relative_to(path)
        if one.is_symlink() or not all(map(FOLDERS.fullmatch, name.parent.parts)):
            continue
        if one.is_dir():
            folders.add(one)
        elif OF_A_CHECKPOINT.fullmatch(name.name):
            one.unlink()
    remove_empty_folders(folders)


def free_name(path: Path) -> Path:
    """A path like this one that nothing has."""
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
