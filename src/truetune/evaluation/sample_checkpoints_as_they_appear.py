"""Samples the checkpoints of a run as they appear, each with the same questions.

The answers stand in a folder beside the run (`RUN-sampled`), as `truetune train` keeps its own, so that the same
command continues where it was interrupted. It runs beside the training and only reads what that writes. The trade-off:
each checkpoint is loaded again, which takes longer than sampling inside of the training, and disturbs it by nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truetune.checkpoint.load_checkpoint import is_checkpoint
from truetune.checkpoint.read_run_and_check_checkpoints import (
    RUN_FILE,
    UNFINISHED_STATUSES,
    find_checkpoint_fault,
    list_checkpoints,
    read_run,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import (
    findings_new_or_worse,
    findings_on_sampled_answers,
    judge_answers,
)
from truetune.data.guard_output_folder import (
    Input,
    find_foreign_files,
    foreign_file_error,
    refuse_unsafe_output_folder,
)
from truetune.data.write_atomically import write_atomically
from truetune.errors import TruetuneError, UsageError
from truetune.evaluation.choose_held_out_prompts import (
    ChosenPrompts,
    choose_prompts,
    find_held_out_files,
    recorded_format_and_column_names,
)
from truetune.evaluation.sample_model import (
    DEFAULT_OPTIONS,
    Progress,
    SamplingSettings,
    describe_subject,
    judge_with_causes,
    sample_and_score_answers,
    should_look_for_causes_of_failures,
    unanswered_prompts,
)
from truetune.evaluation.sample_report import SampleReport, Success
from truetune.generation.answer_parsers_named_by_user import make_parser
from truetune.generation.answer_samples import Prompt, SampledRun, SamplingPass
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.sampling_pass_files import (
    SAMPLES,
    is_sample_file,
    read_passes_with_new_token_limits,
    save_pass,
)
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

# Without it, nobody could say whether kept answers are to the same questions.
QUESTIONS_FILE = "asked.json"
# So that folders of older releases can still be continued.
LATER_QUESTIONS = {"min_p": 0.0}
"""What older files of questions do not have, and how their answers were made"""
# Chosen, not measured: checkpoints are minutes apart; a listing of a folder on a network drive costs little at this
# pace, and twice as long would not be noticed.
POLL_INTERVAL_S = 5.0
"""Seconds between two glances at the folder"""


def follow_checkpoints(
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
    min_p: float = 0.0,
    parser: str | None = None,
    min_success: float | None = None,
    all_rows: bool = False,
    diagnose: bool | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options = DEFAULT_OPTIONS,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
    wait: Callable[[], None] = lambda: time.sleep(POLL_INTERVAL_S),
    **settings: Any,
) -> SampleReport:
    """Ask each whole checkpoint in the folder of a run the same questions, until the run ends.

    Args:
        run: the folder.
        data: files with rows; else those that the run held out.
        once: ask those that are there, and end.
        looks: the folder that keeps the answers.
        count, seed, max_new_tokens, temperature, top_p, min_p, parser, min_success: as in `sample_model`.
        all_rows, diagnose, base, tokenizer, options, progress, settings: as in `sample_model`.
        say: is told of each pass, and of each finding that is new or worse.
        wait: waits for more checkpoints.

    Raises:
        UsageError: the folder is no run, has no whole checkpoint, or `looks` holds something else; and what
            `sample_model` raises.
    """
    started = time.perf_counter()
    # Only our own runs say in a file whether they still continue.
    folder = Path(run)
    if not folder.is_dir() or not read_run(folder):
        raise UsageError(
            f"{run}: expected the output folder of `truetune train`, with its {RUN_FILE}"
        )
    files = find_held_out_files(read_run(folder), data)
    choice = {"count": count, "seed": seed, "all_rows": all_rows}
    followed = _FollowedRun(
        folder,
        files,
        choice,
        SamplingSettings(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            parse=make_parser(parser) if parser else None,
            options=options,
            progress=progress,
        ),
        {"base": base, "tokenizer": tokenizer},
        recorded_format_and_column_names(read_run(folder), files) | settings,
    )
    # What decides the answers: kept answers are continued only where all of it is the same.
    questions = {
        "data": list(files),
        **choice,
        "max_new_tokens": max_new_tokens,
        "parser": parser,
        "temperature": temperature,
        "top_p": top_p,
        "min_p": min_p,
    }
    answers_folder = _open_answers_folder(_choose_answers_folder(folder, files, looks), questions)
    followed.looks |= {
        sampling_pass.step: sampling_pass
        for sampling_pass, _ in read_passes_with_new_token_limits(answers_folder)
    }
    for sampling_pass in followed.sampled_run().looks:
        say(_pass_in_one_line(sampling_pass, max_new_tokens, "asked before"))
    # What was already told, so that a fault of all checkpoints is told once.
    told_before: dict[str, Finding] = {}
    for step, path in _wait_for_checkpoints(folder, once, wait, followed.notes):
        fresh = followed.sample_checkpoint_if_new(path, step)
        if fresh is None:
            continue
        save_pass(fresh, max_new_tokens, answers_folder)
        say(_pass_in_one_line(fresh, max_new_tokens, f"{fresh.seconds:.1f} s"))
        findings = findings_on_sampled_answers(followed.sampled_run(), followed.spec())
        for finding in findings_new_or_worse(findings, told_before):
            say(f"  {finding.severity}[{finding.code}] {finding.rule}: {finding.message}")
    if not followed.looks:
        reasons = "; ".join(["", *followed.notes])
        raise UsageError(f"{run}: there is no whole checkpoint in it{reasons}")
    return followed.report(run, started, diagnose, min_success)


@dataclass
class _FollowedRun:
    """A run, and what its checkpoints have answered."""

    folder: Path
    files: tuple[str, ...]
    choice: Mapping[str, Any]
    """count, seed and all_rows of `choose_prompts`"""
    asking: SamplingSettings
    parts: Mapping[str, str | None]
    """base and tokenizer of `find_model_source`"""
    settings: Mapping[str, Any]
    """Of RunSpec"""
    looks: dict[int, SamplingPass] = field(default_factory=dict)
    """By step"""
    notes: list[str] = field(default_factory=list)
    prompts: ChosenPrompts | None = None
    """Once a checkpoint was opened"""
    latest: tuple[ModelSource, Probes] | None = None
    """The checkpoint that was opened last"""

    def sample_checkpoint_if_new(self, path: Path, step: int) -> SamplingPass | None:
        """The pass over a checkpoint; None where there is one already, or the run has removed the checkpoint."""
        if step in self.looks:
            return None
        try:
            model_source, probes, chosen = self.open_checkpoint(path)
            with open_backend(model_source, probes.tokenizer, self.asking.options) as backend:
                self.looks[step] = sample_and_score_answers(
                    backend, probes, chosen.prompts, self.asking, step
                )
        except (TruetuneError, OSError):
            # save_total_limit of the Trainer removes old checkpoints, also while they are read.
            if path.is_dir():
                raise
            self.notes.append(f"{path.name} was removed by the run before it was asked")
        return self.looks.get(step)

    def open_checkpoint(self, path: Path) -> tuple[ModelSource, Probes, ChosenPrompts]:
        """A checkpoint, and the questions, which are the same for all."""
        model_source = find_model_source(str(path), **self.parts)
        probes = model_source.prepared(**self.settings)
        self.latest = model_source, probes
        if self.prompts is None:
            self.prompts = choose_prompts(model_source, probes, self.files, **self.choice)
            self.looks = {
                step: _replace_prompts_in_kept_pass(sampling_pass, self.prompts.prompts)
                for step, sampling_pass in self.looks.items()
            }
        return model_source, probes, self.prompts

    def spec(self) -> RunSpec | None:
        """The settings, once a checkpoint was asked."""
        return self.latest and self.latest[1].spec

    def sampled_run(self) -> SampledRun:
        """The passes by step, as the rules on answers take them."""
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
        """The report on all passes, with the causes of what the last one shows.

        Args:
            name: of the run.
            started: when, by `time.perf_counter`.
            diagnose: as in `sample_model`.
            min_success: as in `sample_model`.
        """
        last, limit = self.sampled_run().looks[-1], self.asking.max_new_tokens
        path_of_step = {
            step_of_checkpoint_name(path): path for path in list_checkpoints(self.folder)
        }
        # A finished run may have its last weights in its own folder.
        path = path_of_step.get(last.step, self.folder)
        is_there = is_checkpoint(path)
        # Any other checkpoint tells tokenizer and settings as well.
        any_path = path if is_there else next(iter(path_of_step.values()), path)
        model_source, probes, chosen = self.open_checkpoint(any_path)
        # Again, for opening it may have renewed the prompts of kept answers.
        sampled = self.sampled_run()
        last = sampled.looks[-1]
        judgement, kind = judge_answers(sampled, probes.spec), "the answers that were kept"
        if not is_there:
            self.notes.append(
                f"the checkpoint of step {last.step:,} is gone: it can't be asked why"
            )
        elif should_look_for_causes_of_failures(last, limit, diagnose):
            with open_backend(model_source, probes.tokenizer, self.asking.options) as backend:
                judgement, notes = judge_with_causes(
                    model_source, probes, sampled, backend, self.asking, diagnose
                )
                self.notes += [*notes, *backend.notes]
                kind = backend.kind
        return SampleReport(
            spec=probes.spec.model_copy(update={"data": self.files}),
            subjects=(describe_subject(model_source, probes, chosen, self.asking, kind),),
            findings=judgement.findings,
            examined=judgement.examined,
            not_judged=judgement.not_judged,
            seconds=time.perf_counter() - started,
            name=name,
            looks=sampled.looks,
            limit=limit,
            unanswered=unanswered_prompts(chosen.prompts, last),
            notes=tuple(dict.fromkeys(self.notes)),
            min_success=min_success,
        )


def _replace_prompts_in_kept_pass(
    sampling_pass: SamplingPass, prompts: Sequence[Prompt]
) -> SamplingPass:
    """A pass that was kept, with its prompts as they are made now. Raises UsageError where they are others."""
    # Files of samples keep less of a prompt than there is: its chat, for instance.
    by_ids = {prompt.ids: prompt for prompt in prompts}
    if not all(sample.prompt.ids in by_ids for sample in sampling_pass.samples):
        raise UsageError(
            "the answers that were kept are to other prompts: the rows have changed; name another"
            " folder with --looks"
        )
    samples = tuple(
        replace(sample, prompt=by_ids[sample.prompt.ids]) for sample in sampling_pass.samples
    )
    return replace(sampling_pass, samples=samples)


def _choose_answers_folder(folder: Path, files: Sequence[str], looks: str | None) -> Path:
    """The folder that keeps the answers: that of `--looks`, else one beside the run.

    Raises UsageError where it would hold the run or its data, or is in one of them.
    """
    beside_run = folder.resolve().with_name(f"{folder.resolve().name}-sampled")
    chosen = Path(looks) if looks else beside_run
    inputs = [Input("the run", folder), *(Input("data", Path(name)) for name in files)]
    refuse_unsafe_output_folder(chosen, inputs, option="--looks")
    return chosen


def _open_answers_folder(folder: Path, questions: dict[str, Any]) -> Path:
    """The folder of the answers, made where it is not there.

    Args:
        folder: its path.
        questions: what decides the answers.

    Raises:
        UsageError: it holds the answers to other questions, what is none of ours, or can't be written.
    """
    # A link would have us read, and later write, somewhere else.
    is_readable = folder.is_dir() and not (folder / QUESTIONS_FILE).is_symlink()
    before = read_json_object(folder / QUESTIONS_FILE, []) if is_readable else None
    if before is not None:
        before = {**LATER_QUESTIONS, **before}
    # A file of that name with other fields is somebody else's.
    is_ours = before is not None and before.keys() == questions.keys()

    def is_own_file(path: Path) -> bool:
        if not is_ours or (folder / path).is_symlink():
            return False
        is_sample = path.parent == Path(SAMPLES) and is_sample_file(folder / path)
        return path == Path(QUESTIONS_FILE) or is_sample

    strangers = find_foreign_files(
        folder, {}, folders=(SAMPLES,) if is_ours else (), also_ours=is_own_file
    )
    stranger = next(strangers, None)
    if stranger is not None:
        raise foreign_file_error(
            stranger, "nothing was written: move it elsewhere, or name another folder with --looks"
        )
    if before is None:
        _make_folder_with_questions(folder, questions)
    else:
        _check_same_questions(folder, before, questions)
    return folder


def _check_same_questions(
    folder: Path, before: Mapping[str, Any], questions: Mapping[str, Any]
) -> None:
    """Raises UsageError where the answers that a folder holds are to other questions."""
    differing = [name for name in questions if before.get(name) != questions[name]]
    if differing:
        raise UsageError(
            f"{folder} holds the answers to other questions ({', '.join(differing)} differ); name"
            " another folder with --looks, or remove it"
        )


def _make_folder_with_questions(folder: Path, questions: dict[str, Any]) -> None:
    """Make the folder of the answers with the file of their questions. Raises UsageError where it
    can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / QUESTIONS_FILE, json.dumps(questions, indent=1).encode())
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: can't be written: {error.strerror}"
        ) from None


def _wait_for_checkpoints(
    folder: Path, once: bool, wait: Callable[[], None], notes: list[str]
) -> Iterator[tuple[int, Path]]:
    """(step, folder) of each whole checkpoint, as they appear, until the run has ended."""
    done: set[int] = set()
    while True:
        # Read before the listing: a checkpoint that is written between the two is seen in the next round.
        running = not once and read_run(folder).get("status") in UNFINISHED_STATUSES
        faults: list[str] = []
        for step, path in _list_whole_checkpoints(folder, faults, done):
            done.add(step)
            yield step, path
        if not running:
            # While a run writes, a checkpoint is only not whole yet.
            notes += faults
            return
        wait()


def _list_whole_checkpoints(
    folder: Path, faults: list[str], done: Collection[int] = ()
) -> Iterator[tuple[int, Path]]:
    """(step, folder) of the whole checkpoints that are there, and of the run itself where it is finished.

    Args:
        folder: of the run.
        faults: takes what is wrong with the others.
        done: steps that are left out.
    """
    for path in list_checkpoints(folder):
        step = step_of_checkpoint_name(path)
        if step is None or step in done:
            continue
        fault = find_checkpoint_fault(path)
        if fault:
            faults.append(f"{path.name} is not asked: {fault}")
        else:
            yield step, path
    run = read_run(folder)
    step = run.get("step")
    if run.get("status") != "finished" or not isinstance(step, int) or not is_checkpoint(folder):
        return
    # The last weights mostly stand in a checkpoint as well.
    if step not in {step_of_checkpoint_name(path) for path in list_checkpoints(folder)}:
        yield step, folder


def _pass_in_one_line(sampling_pass: SamplingPass, limit: int, how: str) -> str:
    """One line on a pass, with how it came about."""
    success = Success.of_pass(sampling_pass, limit)
    return f"step {sampling_pass.step:,}: {success.good} of {success.of} answers are good ({how})"
