"""follow: the checkpoints of a run, asked as they appear.

The looks stand in a folder beside the run (`RUN-sampled`), as `truetune train` keeps its own, so that the same command
goes on where it was interrupted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truetune.checkpoint.load_checkpoint import is_checkpoint
from truetune.checkpoint.run_folder import (
    RUN_FILE,
    checkpoint_step,
    find_checkpoint_fault,
    list_checkpoints,
    read_run,
)
from truetune.checkpoint.weight_files import read_object
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import answer_findings, judge_answers, new_or_worse
from truetune.data.atomic import write_atomically
from truetune.data.output_folder import Input, check_output_folder, find_strangers, stranger_error
from truetune.errors import TruetuneError, UsageError
from truetune.evaluation.asked import Asked, asked, columns_of, data_of
from truetune.evaluation.report import SampleReport, Success
from truetune.evaluation.sample import (
    PLAIN,
    Asking,
    Progress,
    ask_model,
    failing,
    judgement_with_causes,
    subject,
    unanswered,
)
from truetune.generation.answer_parsers import make_parser
from truetune.generation.answer_samples import Prompt, SampledRun, SamplingPass
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.render.probes import Probes
from truetune.spec.run import RunSpec
from truetune.training.watch.sample_files import SAMPLES, is_sample_file, read_passes, save_pass

ASKED = "asked.json"
EVERY = 5.0
"""Seconds between two glances at the folder"""
RUNNING = ("looking", "training")
"""States of a run that may make more checkpoints"""


def follow(
    run: str,
    data: Sequence[str] = (),
    *,
    once: bool = False,
    looks: str | None = None,
    count: int = 20,
    seed: int = 0,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    parser: str | None = None,
    min_success: float | None = None,
    all_rows: bool = False,
    diagnose: bool | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options = PLAIN,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
    wait: Callable[[], None] = lambda: time.sleep(EVERY),
    **settings: Any,
) -> SampleReport:
    """Ask each whole checkpoint in the folder of a run the same questions, until the run ends; with `once` those that
    are there.

    `looks` is the folder that keeps the answers; `say` is told of each look. The rest is as in `sample`, whose errors
    it raises.
    """
    started = time.perf_counter()
    folder = Path(run)
    if not folder.is_dir() or not read_run(folder):
        raise UsageError(
            f"{run}: expected the output folder of `truetune train`, with its {RUN_FILE}"
        )
    files = data_of(read_run(folder), data)
    choice = {"count": count, "seed": seed, "all_rows": all_rows}
    parse = make_parser(parser) if parser else None
    followed = _Followed(
        folder,
        files,
        choice,
        Asking(max_new_tokens, temperature, top_p, seed, parse, options, progress),
        {"base": base, "tokenizer": tokenizer},
        columns_of(read_run(folder), files) | settings,
    )
    given = {
        "data": list(files),
        **choice,
        "max_new_tokens": max_new_tokens,
        "parser": parser,
        "temperature": temperature,
        "top_p": top_p,
    }
    keep = Path(looks) if looks else folder.resolve().with_name(f"{folder.resolve().name}-sampled")
    inputs = [Input("the run", folder), *(Input("data", Path(name)) for name in files)]
    check_output_folder(keep, inputs, option="--looks")
    kept = _kept(keep, given)
    followed.looks |= {look.step: look for look, _ in read_passes(kept)}
    for look in followed.watched().looks:
        say(_line(look, max_new_tokens, "asked before"))
    said: dict[str, Finding] = {}
    for step, path in _coming(folder, once, wait, followed.notes):
        if (fresh := followed.ask(path, step)) is not None:
            save_pass(fresh, max_new_tokens, kept)
            say(_line(fresh, max_new_tokens, f"{fresh.seconds:.1f} s"))
            for finding in new_or_worse(answer_findings(followed.watched(), followed.spec()), said):
                say(f"  {finding.severity}[{finding.code}] {finding.rule}: {finding.message}")
    if not followed.looks:
        raise UsageError(
            f"{run}: there is no whole checkpoint in"
            f" it{''.join(f'; {note}' for note in followed.notes)}"
        )
    return followed.report(run, started, diagnose, min_success)


@dataclass
class _Followed:
    """A run, and what its checkpoints have answered."""

    folder: Path
    files: tuple[str, ...]
    choice: Mapping[str, Any]
    """count, seed and all_rows of `asked`"""
    asking: Asking
    parts: Mapping[str, str | None]
    """base and tokenizer of `find_model_source`"""
    settings: Mapping[str, Any]
    looks: dict[int, SamplingPass] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asked: Asked | None = None
    latest: tuple[ModelSource, Probes] | None = None

    def ask(self, path: Path, step: int) -> SamplingPass | None:
        """The look at a checkpoint; None where there is one already, or the run has removed the checkpoint."""
        if step in self.looks:
            return None
        try:
            place, probes, found = self.at(path)
            with open_backend(place, probes.tokenizer, self.asking.options) as backend:
                self.looks[step] = ask_model(backend, probes, found.prompts, self.asking, step)
        except (TruetuneError, OSError):
            if path.is_dir():
                raise
            self.notes.append(f"{path.name} was removed by the run before it was asked")
        return self.looks.get(step)

    def at(self, path: Path) -> tuple[ModelSource, Probes, Asked]:
        """A checkpoint, and the questions, which are the same for all."""
        place = find_model_source(str(path), **self.parts)
        probes = place.prepared(**self.settings)
        self.latest = place, probes
        if self.asked is None:
            self.asked = asked(place, probes, self.files, **self.choice)
            self.looks = {
                step: _renewed(look, self.asked.prompts) for step, look in self.looks.items()
            }
        return place, probes, self.asked

    def spec(self) -> RunSpec | None:
        """Once a checkpoint was asked."""
        return self.latest and self.latest[1].spec

    def watched(self) -> SampledRun:
        """As the rules on answers take it."""
        run = read_run(self.folder)
        looks = tuple(self.looks[step] for step in sorted(self.looks))
        return SampledRun(
            looks,
            limit=self.asking.max_new_tokens,
            finished=run.get("status") == "finished",
            total=run.get("steps") or None,
        )

    def report(
        self, name: str, started: float, diagnose: bool | None, min_success: float | None
    ) -> SampleReport:
        """Of all looks, with the causes of what the last one shows."""
        last, limit = self.watched().looks[-1], self.asking.max_new_tokens
        made = {checkpoint_step(path): path for path in list_checkpoints(self.folder)}
        path = made.get(last.step, self.folder)
        there = is_checkpoint(path)
        place, probes, _ = self.at(path if there else next(iter(made.values()), path))
        assert self.asked is not None
        found, watched = self.asked, self.watched()
        last = watched.looks[-1]
        judged, kind = judge_answers(watched, probes.spec), "the answers that were kept"
        if not there:
            self.notes.append(
                f"the checkpoint of step {last.step:,} is gone: it can't be asked why"
            )
        elif failing(last, limit) if diagnose is None else diagnose:
            with open_backend(place, probes.tokenizer, self.asking.options) as backend:
                judged, more = judgement_with_causes(
                    place, probes, watched, backend, self.asking, diagnose
                )
                self.notes += [*more, *backend.notes]
                kind = backend.kind
        return SampleReport(
            spec=probes.spec.model_copy(update={"data": self.files}),
            subjects=(subject(place, probes, found, self.asking, kind),),
            findings=judged.findings,
            examined=judged.examined,
            not_judged=judged.not_judged,
            seconds=time.perf_counter() - started,
            name=name,
            looks=watched.looks,
            limit=limit,
            unanswered=unanswered(found.prompts, last),
            notes=tuple(dict.fromkeys(self.notes)),
            min_success=min_success,
        )


def _renewed(look: SamplingPass, prompts: Sequence[Prompt]) -> SamplingPass:
    """A look that was kept, with its prompts as they are made now. Raises UsageError where they are others."""
    known = {prompt.ids: prompt for prompt in prompts}
    if not all(sample.prompt.ids in known for sample in look.samples):
        raise UsageError(
            "the answers that were kept are to other prompts: the rows have changed; name another"
            " folder with --looks"
        )
    return replace(
        look,
        samples=tuple(replace(sample, prompt=known[sample.prompt.ids]) for sample in look.samples),
    )


def _kept(folder: Path, given: dict[str, Any]) -> Path:
    """The folder of the looks. Raises UsageError where it holds those of other questions, or what is none of ours."""
    before = (
        read_object(folder / ASKED, [])
        if folder.is_dir() and not (folder / ASKED).is_symlink()
        else None
    )
    ours = before is not None and before.keys() == given.keys()

    def also_ours(path: Path) -> bool:
        if (folder / path).is_symlink():
            return False
        return ours and (
            path == Path(ASKED) or (path.parent == Path(SAMPLES) and is_sample_file(folder / path))
        )

    stranger = next(
        find_strangers(folder, {}, folders=(SAMPLES,) if ours else (), also_ours=also_ours), None
    )
    if stranger is not None:
        raise stranger_error(
            stranger, "nothing was written: move it elsewhere, or name another folder with --looks"
        )
    if before is not None and before != given:
        other = [name for name in given if before.get(name) != given[name]]
        raise UsageError(
            f"{folder} holds the answers to other questions ({', '.join(other)} differ); name"
            " another folder with --looks, or remove it"
        )
    if before is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / ASKED, json.dumps(given, indent=1).encode())
        except OSError as error:
            raise UsageError(
                f"{error.filename or folder}: can't be written: {error.strerror}"
            ) from None
    return folder


def _coming(
    folder: Path, once: bool, wait: Callable[[], None], notes: list[str]
) -> Iterator[tuple[int, Path]]:
    """(step, folder) of each whole checkpoint, as they appear, until the run has ended."""
    done: set[int] = set()
    while True:
        running = not once and read_run(folder).get("status") in RUNNING
        faults: list[str] = []
        for step, path in _whole_checkpoints(folder, faults, done):
            done.add(step)
            yield step, path
        if not running:
            notes += faults
            return
        wait()


def _whole_checkpoints(
    folder: Path, faults: list[str], done: Collection[int] = ()
) -> Iterator[tuple[int, Path]]:
    """(step, folder) of the whole checkpoints that are there, and of the run itself where it is finished."""
    for path in list_checkpoints(folder):
        step = checkpoint_step(path)
        if step is None or step in done:
            continue
        if fault := find_checkpoint_fault(path):
            faults.append(f"{path.name} is not asked: {fault}")
        else:
            yield step, path
    run = read_run(folder)
    finished = (
        run.get("status") == "finished"
        and isinstance(run.get("step"), int)
        and is_checkpoint(folder)
    )
    if finished and run["step"] not in {checkpoint_step(path) for path in list_checkpoints(folder)}:
        yield run["step"], folder


def _line(look: SamplingPass, limit: int, how: str) -> str:
    counts = Success.of_look(look, limit)
    return f"step {look.step:,}: {counts.good} of {counts.of} answers are good ({how})"
