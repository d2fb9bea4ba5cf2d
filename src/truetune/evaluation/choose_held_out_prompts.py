"""Chooses the prompts that a model is tried on: of rows that it was not trained on, where its record tells.

A run's record has the digests of its files and the numbers of the rows that it held out; a file with such a digest is
the run's own, and only its held-out rows are asked. Prompts of any other file are looked up among the training rows.
The trade-off: for runs of very many rows that look-up is left out, and the report says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.guard_output_folder import file_digest
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.evaluation.training_overlap import find_training_overlap
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import build_prompts
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: every example is decoded before the first question is asked. Ten times as many would keep a
# user waiting for longer than the sampling takes; of fewer runs it would be known what was trained on.
MAX_COMPARED = 100_000
"""Examples of a run, at most, that prompts of another file are looked for in"""


@dataclass(frozen=True)
class ChosenPrompts:
    """Prompts, and how they came about."""

    prompts: tuple[Prompt, ...]
    data: tuple[str, ...]
    rows: int
    """That were read"""
    left_out: int
    """Of them, for they were trained on"""
    skipped: Mapping[str, int]
    """Why rows that were tried gave no prompt"""
    recorded: bool
    """There is a record of what was trained on."""

    def describe_count_and_source(self) -> str:
        """How many prompts there are, and of what, in a few words."""
        text = f"{len(self.prompts):,} of {self.rows:,} rows of {', '.join(self.data)}"
        if self.left_out:
            text += f"; {self.left_out:,} that were trained on are left out"
        seen = sum(prompt.seen for prompt in self.prompts)
        if seen:
            text += f"; {seen:,} of the prompts were trained on"
        return text


def choose_prompts(
    model_source: ModelSource,
    probes: Probes,
    data: Sequence[str],
    count: int,
    *,
    seed: int = 0,
    all_rows: bool = False,
) -> ChosenPrompts:
    """Up to `count` prompts of the rows of `data`.

    Args:
        model_source: the model, with the record of its run.
        probes: its tokenizer and template.
        data: files with rows.
        count: prompts at most.
        seed: of the choice.
        all_rows: also those that the model was trained on.

    Raises:
        DataError: no row gives a prompt.
    """
    held_out = HeldOutFilter.of(model_source.run, data)
    skipped: Counter[str] = Counter()
    built = build_prompts(
        probes.spec,
        held_out.rows(read_rows(probes.spec, data), all_rows=all_rows),
        count,
        seed=seed,
        probes=probes,
        skipped=skipped,
    )
    if not built:
        raise DataError(f"{', '.join(data)}: {_why_no_prompt(held_out, skipped)}")
    prompts = [replace(prompt, seen=held_out.was_trained_on(prompt)) for prompt in built]
    examples = (model_source.run.get("data") or {}).get("documents", MAX_COMPARED + 1)
    # The run's own files are known by row; only the rows of other files must be looked for.
    if not held_out.held and examples <= MAX_COMPARED:
        overlap = find_training_overlap(model_source, prompts, probes)
        prompts = (
            prompts if isinstance(overlap, str) else overlap.mark_prompts_as_seen_or_not(prompts)
        )
    return ChosenPrompts(
        prompts=tuple(prompts),
        data=tuple(data),
        rows=held_out.read,
        left_out=held_out.left_out,
        skipped=skipped,
        recorded=held_out.recorded,
    )


def rebuild_prompts_for_other_model(
    probes: Probes, prompts: Sequence[Prompt], data: Sequence[str]
) -> list[Prompt | None]:
    """The prompts that another model makes of the same rows.

    Args:
        probes: tokenizer and template of the other model.
        prompts: those of the first model.
        data: the files of the rows.

    Returns:
        One for each of `prompts`; None where the other model makes none of a row.
    """
    row_numbers = {prompt.row for prompt in prompts}
    rows = [row for row in read_rows(probes.spec, data) if row.origin.row in row_numbers]
    built = build_prompts(probes.spec, rows, len(rows), probes=probes)
    by_row = {prompt.row: prompt for prompt in built}
    return [by_row.get(prompt.row) for prompt in prompts]


def read_rows(spec: RunSpec, data: Sequence[str]) -> Iterator[Conversation]:
    """The rows of files as the settings say. Raises DataError."""
    return read_conversations(data, format=spec.format, columns=spec.map)


def find_held_out_files(run: Mapping[str, Any], data: Sequence[str]) -> tuple[str, ...]:
    """The files that are named, else those that the run held out, by its record. Raises UsageError where there are
    none."""
    if data:
        return tuple(data)
    settings = run.get("settings") or {}
    # Rows held out of the training file itself stand in that file.
    own_file = settings.get("data") if (run.get("data") or {}).get("held_out") else None
    files = settings.get("eval_data") or own_file
    if not files or not all(Path(name).exists() for name in files):
        where = f"; the run held out {', '.join(files)}, which is not here" if files else ""
        raise UsageError(f"name the rows to ask with --data FILE{where}")
    return tuple(files)


def recorded_format_and_column_names(run: Mapping[str, Any], data: Sequence[str]) -> dict[str, Any]:
    """The format and the names of columns with which the run read its own files, where these are
    its own; else empty.
    """
    settings = run.get("settings") or {}
    own = {Path(name).name for part in ("data", "eval_data") for name in settings.get(part) or ()}
    # By name: the same file is named by other paths from other folders. Another file may have other columns.
    if not {Path(name).name for name in data} <= own:
        return {}
    recorded = {name: settings.get(name) for name in ("format", "map")}
    return {name: value for name, value in recorded.items() if value}


def _why_no_prompt(held_out: HeldOutFilter, skipped: Counter[str]) -> str:
    """Why no row gave a prompt, with what can be done."""
    if held_out.read and held_out.left_out == held_out.read:
        return (
            f"all {held_out.read:,} rows were trained on (the model's run.json): name held-out rows,"
            " or ask these with --all-rows"
        )
    reason = skipped.most_common(1)
    return f"no row gives a prompt{f': {reason[0][0]}' if reason else ''}"


@dataclass
class HeldOutFilter:
    """Lets pass the rows of a run's files that it was not trained on, by digests of files and numbers of rows."""

    recorded: bool
    """There is a record of what was trained on."""
    held: dict[str, frozenset[int] | None]
    """File of the run -> which of its rows, counted from 0, were held out; None where that can't be told"""
    read: int = 0
    """Rows that were read so far"""
    left_out: int = 0
    """Rows that were not let pass so far"""
    fresh: set[int] = field(default_factory=set)
    """Of the rows of such files, those that were held out"""

    @classmethod
    def of(cls, run: Mapping[str, Any], data: Sequence[str]) -> HeldOutFilter:
        """The filter for files, by the record of a run. Raises DataError for a file that is not there."""
        record = run.get("data") or {}
        recorded = _recorded_inputs(record)
        # A digest reads the whole file: not without something to compare it with.
        digests = _digest_files(data) if recorded else {}
        position = {entry["digest"]: number for number, entry in enumerate(recorded)}
        held_rows = frozenset(record.get("held_out") or ())
        # Held-out rows are numbered over all files of the run, so the lengths of earlier ones are needed.
        others = _local_run_files_by_digest(run) if held_rows and len(recorded) > 1 else {}
        path_of_digest = others | {digest: path for path, digest in digests.items()}
        held = {
            path: _held_out_row_numbers_of_file(
                recorded[: position[digest]], held_rows, path_of_digest
            )
            for path, digest in digests.items()
            if digest in position
        }
        return cls(bool(recorded), held)

    def rows(self, rows: Iterable[Conversation], *, all_rows: bool) -> Iterator[Conversation]:
        """The rows that were held out, or all rows; counts what it sees."""
        first_row: dict[str, int] = {}
        for row in rows:
            self.read += 1
            file = row.origin.file
            # Rows are numbered over all files that are read; in a file they are counted from its own start.
            number = row.origin.row - first_row.setdefault(file, row.origin.row)
            if file in self.held:
                if number in (self.held[file] or ()):
                    self.fresh.add(row.origin.row)
                elif not all_rows:
                    self.left_out += 1
                    continue
            yield row

    def was_trained_on(self, prompt: Prompt) -> bool:
        """Was the row of a prompt trained on? Only after its row has passed."""
        return prompt.file in self.held and prompt.row not in self.fresh


def _recorded_inputs(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files of a run, in order. A record is a file that anybody can edit: an entry without both says nothing."""
    inputs = (record.get("inputs") or {}).get("data") or []
    return [
        entry for entry in inputs if isinstance(entry, dict) and {"file", "digest"} <= entry.keys()
    ]


def _digest_files(data: Sequence[str]) -> dict[str, str]:
    """Path -> digest of files on this machine. Raises DataError for one that is not there."""
    paths = [source.path for source in find_data_files_of_paths(data)]
    return {str(path): file_digest(path) for path in paths if isinstance(path, Path)}


def _local_run_files_by_digest(run: Mapping[str, Any]) -> dict[str, str]:
    """Digest -> path of the files that the run's settings name, as far as they are on this machine."""
    try:
        digests = _digest_files((run.get("settings") or {}).get("data") or ())
        return {digest: path for path, digest in digests.items()}
    # Names of another machine, or whatever a record was edited to.
    except (OSError, TruetuneError, TypeError):
        return {}


def _held_out_row_numbers_of_file(
    before: Sequence[Mapping[str, Any]], rows: frozenset[int], path_of_digest: Mapping[str, str]
) -> frozenset[int] | None:
    """The held-out rows of one file of a run, counted from its own start.

    Args:
        before: the entries of the files that stood before it.
        rows: the held-out rows, counted over all files.
        path_of_digest: where files are, by their digests.

    Returns:
        None where the length of a file before it can't be told.
    """
    if not rows or not before:
        return rows
    try:
        passed = sum(
            _count_rows(path_of_digest.get(entry["digest"]) or entry["file"], entry["digest"])
            for entry in before
        )
    except (OSError, TruetuneError):
        return None
    return frozenset(row - passed for row in rows if row >= passed)


def _count_rows(file: str, digest: str) -> int:
    """Rows of a file of the run. Raises OSError or DataError where it is not there as it was."""
    if file_digest(Path(file)) != digest:
        raise DataError(file)
    return sum(1 for _ in read_conversations([file]))
