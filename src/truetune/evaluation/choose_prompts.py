"""Asked: the prompts that a model is tried on, of rows that it was not trained on where its record tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation
from truetune.data.files import find_sources
from truetune.data.output_folder import file_digest
from truetune.data.rows import read_conversations
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.evaluation.training_overlap import seen_rows
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import build_prompts
from truetune.render.probes import Probes
from truetune.spec.run import RunSpec

COMPARED = 100_000
"""Examples of a run, at most, that prompts of another file are looked for in"""


@dataclass(frozen=True)
class Asked:
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

    def fact(self) -> str:
        """In a few words."""
        text = f"{len(self.prompts):,} of {self.rows:,} rows of {', '.join(self.data)}"
        if self.left_out:
            text += f"; {self.left_out:,} that were trained on are left out"
        if seen := sum(prompt.seen for prompt in self.prompts):
            text += f"; {seen:,} of the prompts were trained on"
        return text


def asked(
    place: ModelSource,
    probes: Probes,
    data: Sequence[str],
    count: int,
    *,
    seed: int = 0,
    all_rows: bool = False,
) -> Asked:
    """Up to `count` prompts of the rows of `data`, those that were trained on only with `all_rows`.

    Raises DataError where no row gives one.
    """
    trained = Trained.of(place.run, data)
    skipped: Counter[str] = Counter()
    found = build_prompts(
        probes.spec,
        trained.rows(rows_of(probes.spec, data), all_rows=all_rows),
        count,
        seed=seed,
        probes=probes,
        skipped=skipped,
    )
    if not found:
        raise DataError(f"{', '.join(data)}: {_why(trained, skipped)}")
    prompts = [replace(prompt, seen=trained.has(prompt)) for prompt in found]
    if (
        not trained.held
        and (place.run.get("data") or {}).get("documents", COMPARED + 1) <= COMPARED
    ):
        leaks = seen_rows(place, prompts, probes)
        prompts = prompts if isinstance(leaks, str) else leaks.marked(prompts)
    return Asked(
        tuple(prompts), tuple(data), trained.read, trained.left_out, skipped, trained.recorded
    )


def again(probes: Probes, prompts: Sequence[Prompt], data: Sequence[str]) -> list[Prompt | None]:
    """The prompts that another model makes of the same rows; None where it makes none of a row."""
    wanted = {prompt.row for prompt in prompts}
    rows = [row for row in rows_of(probes.spec, data) if row.origin.row in wanted]
    found = build_prompts(probes.spec, rows, len(rows), probes=probes)
    made = {prompt.row: prompt for prompt in found}
    return [made.get(prompt.row) for prompt in prompts]


def rows_of(spec: RunSpec, data: Sequence[str]) -> Iterator[Conversation]:
    """Raises DataError."""
    return read_conversations(data, format=spec.format, columns=spec.map)


def data_of(run: Mapping[str, Any], data: Sequence[str]) -> tuple[str, ...]:
    """The files that are named, else those that the run held out. Raises UsageError where there are none."""
    if data:
        return tuple(data)
    settings = run.get("settings") or {}
    held = settings.get("eval_data") or (
        settings.get("data") if (run.get("data") or {}).get("held_out") else None
    )
    if not held or not all(Path(name).exists() for name in held):
        where = f"; the run held out {', '.join(held)}, which is not here" if held else ""
        raise UsageError(f"name the rows to ask with --data FILE{where}")
    return tuple(held)


def columns_of(run: Mapping[str, Any], data: Sequence[str]) -> dict[str, Any]:
    """How the run read its own files, where these are its own."""
    settings = run.get("settings") or {}
    own = {Path(name).name for part in ("data", "eval_data") for name in settings.get(part) or ()}
    kept = {name: settings.get(name) for name in ("format", "map")}
    return (
        {name: value for name, value in kept.items() if value}
        if {Path(name).name for name in data} <= own
        else {}
    )


def _why(trained: Trained, skipped: Counter[str]) -> str:
    if trained.read and trained.left_out == trained.read:
        return (
            f"all {trained.read:,} rows were trained on (the model's run.json): name held-out rows,"
            " or ask these with --all-rows"
        )
    reason = skipped.most_common(1)
    return f"no row gives a prompt{f': {reason[0][0]}' if reason else ''}"


@dataclass
class Trained:
    """Which rows of some files a run was trained on, by the digests of its files and the numbers of its rows."""

    recorded: bool
    held: dict[str, frozenset[int] | None]
    """File of the run -> which of its rows, counted from 0, were held out; None where that can't be told"""
    read: int = 0
    left_out: int = 0
    fresh: set[int] = field(default_factory=set)
    """Of the rows of such files, those that were held out"""

    @classmethod
    def of(cls, run: Mapping[str, Any], data: Sequence[str]) -> Trained:
        """Raises DataError for a file that is not there."""
        record = run.get("data") or {}
        inputs = (record.get("inputs") or {}).get("data") or []
        files = [
            entry
            for entry in inputs
            if isinstance(entry, dict) and {"file", "digest"} <= entry.keys()
        ]
        paths = [source.path for source in find_sources(data)] if files else []
        given = {str(path): file_digest(path) for path in paths if isinstance(path, Path)}
        known = {entry["digest"]: number for number, entry in enumerate(files)}
        rows = frozenset(record.get("held_out") or ())
        others = _files_of_run(run) if rows and len(files) > 1 else {}
        there = others | {digest: path for path, digest in given.items()}
        held = {
            path: _held(files[: known[digest]], rows, there)
            for path, digest in given.items()
            if digest in known
        }
        return cls(bool(files), held)

    def rows(self, rows: Iterable[Conversation], *, all_rows: bool) -> Iterator[Conversation]:
        """Those that were held out, or all; counts what it sees."""
        first: dict[str, int] = {}
        for row in rows:
            self.read += 1
            file = row.origin.file
            number = row.origin.row - first.setdefault(file, row.origin.row)
            if file in self.held:
                if number in (self.held[file] or ()):
                    self.fresh.add(row.origin.row)
                elif not all_rows:
                    self.left_out += 1
                    continue
            yield row

    def has(self, prompt: Prompt) -> bool:
        """Was its row trained on?"""
        return prompt.file in self.held and prompt.row not in self.fresh


def _files_of_run(run: Mapping[str, Any]) -> dict[str, str]:
    """Digest -> path of the files that the run's settings name, as far as they are on this machine."""
    try:
        paths = [
            source.path for source in find_sources((run.get("settings") or {}).get("data") or ())
        ]
        return {file_digest(path): str(path) for path in paths if isinstance(path, Path)}
    except (OSError, TruetuneError, TypeError):
        return {}


def _held(
    before: Sequence[Mapping[str, Any]], rows: frozenset[int], there: Mapping[str, str]
) -> frozenset[int] | None:
    """The held-out rows of a file that stood after these others, counted from its own start; `there` says where each of
    them is by its digest."""
    if not rows or not before:
        return rows
    try:
        passed = sum(
            _length(there.get(entry["digest"]) or entry["file"], entry["digest"])
            for entry in before
        )
    except (OSError, TruetuneError):
        return None
    return frozenset(row - passed for row in rows if row >= passed)


def _length(file: str, digest: str) -> int:
    """Rows of a file of the run. Raises OSError or DataError where it is not there as it was."""
    if file_digest(Path(file)) != digest:
        raise DataError(file)
    return sum(1 for _ in read_conversations([file]))
