"""Samples a model's answers to held-out rows and scores them, and where some fail looks for the cause.

Prompts are chosen, asked and scored; the rules on answers judge the samples; where some fail, the model, its base and
its files are asked for the cause. With `compare`, another model is asked the same rows. The trade-off: with twenty
prompts it takes a minute and not an hour, and the report says how wide the interval of a share is then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truetune.checks.find_causes_of_bad_answers import find_causes, is_symptom_explained
from truetune.checks.findings import RANK, sort_findings
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Subject
from truetune.errors import TruetuneError, UsageError
from truetune.evaluation.choose_held_out_prompts import (
    ChosenPrompts,
    choose_prompts,
    find_held_out_files,
    rebuild_prompts_for_other_model,
    recorded_format_and_column_names,
)
from truetune.evaluation.compare_model_answers import SampleComparison, compare_model_answers
from truetune.evaluation.gather_evidence_on_causes_of_answers import gather_evidence
from truetune.evaluation.sample_report import SampleReport
from truetune.generation.answer_parsers_named_by_user import Parser, make_parser
from truetune.generation.answer_samples import Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.answer_verdicts import is_good_answer
from truetune.generation.backends.backend import Backend, Decoding
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.build_prompts import control_token_texts
from truetune.generation.identical_answers import mark_identical_answers
from truetune.generation.labels_said_by_answers import mark_whether_answers_give_reference
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.render.template_probes import Probes

DEFAULT_OPTIONS = Options()
Progress = Callable[[str, int, int], None]
"""Is told what is done, and how much of how much"""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How models are asked, and their answers read."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    """0: greedy"""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    parse: Parser | None = None
    options: Options = DEFAULT_OPTIONS
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a min_p that is no share, or has nothing to draw."""
        if not 0 <= self.min_p <= 1:
            raise UsageError(f"min_p {self.min_p:g}: expected a number from 0 to 1")
        if self.min_p and not self.temperature:
            raise UsageError(
                f"min_p {self.min_p:g} does nothing to greedy answers: give a temperature as well"
            )

    def decoding_that_ends_at(self, stops: frozenset[int]) -> Decoding:
        """The settings as a backend takes them; answers end at `stops`."""
        return Decoding(
            stops,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
        )

    def progress_callback_for_task(self, task: str) -> Callable[[int, int], None] | None:
        """Progress on one task: what takes how much is done, of how much."""
        progress = self.progress
        return None if progress is None else lambda done, total: progress(task, done, total)

    def describe_decoding_in_few_words(self) -> str:
        """How answers are drawn, in a few words for a report."""
        if not self.temperature:
            how = "greedy"
        else:
            top_p = f", top_p {self.top_p:g}" if self.top_p < 1 else ""
            min_p = f", min_p {self.min_p:g}" if self.min_p else ""
            how = f"temperature {self.temperature:g}{top_p}{min_p}, seed {self.seed}"
        return f"{how}, at most {self.max_new_tokens:,} new tokens"


def sample_model(
    name: str,
    data: Sequence[str] = (),
    *,
    count: int = 20,
    seed: int = 0,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    parser: str | None = None,
    compare: str | None = None,
    min_success: float | None = None,
    all_rows: bool = False,
    diagnose: bool | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options = DEFAULT_OPTIONS,
    progress: Progress | None = None,
    **settings: Any,
) -> SampleReport:
    """Ask a model some rows, and judge the answers.

    Args:
        name: the model, as `find_model_source` takes it.
        data: files with rows; else those that its run held out.
        count: prompts at most.
        seed: of the choice of rows, and of the drawing of tokens.
        max_new_tokens: after which an answer is cut.
        temperature: 0 for greedy answers.
        top_p: of nucleus sampling.
        min_p: tokens less likely than this share of the likeliest are never drawn; needs a temperature.
        parser: reads answers and references.
        compare: another model that is asked the same rows.
        min_success: the share of good answers below which the report has failed.
        all_rows: also rows that the model was trained on.
        diagnose: ask why answers fail: where some do (None), always or never.
        base: of an adapter.
        tokenizer: where the model has none of its own.
        options: of the backend.
        progress: is told what is done, and how much of how much.
        settings: those of RunSpec.

    Raises:
        UsageError, SpecError, DataError, TokenizerError, TemplateError: what is named can't be used.
    """
    started = time.perf_counter()
    asking = SamplingSettings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        parse=make_parser(parser) if parser else None,
        options=options,
        progress=progress,
    )
    model_source = find_model_source(name, base=base, tokenizer=tokenizer)
    if compare is not None:
        # A wrong name is said now, and not after minutes of asking the first model.
        _find_other_source(compare, model_source, base)
    files = find_held_out_files(model_source.run, data)
    settings = recorded_format_and_column_names(model_source.run, files) | settings
    probes = model_source.prepared(**settings)
    chosen = choose_prompts(model_source, probes, files, count, seed=seed, all_rows=all_rows)
    # The causes are asked while the model is still loaded.
    with open_backend(model_source, probes.tokenizer, options) as backend:
        sampling_pass = sample_and_score_answers(backend, probes, chosen.prompts, asking)
        sampled = SampledRun((sampling_pass,), limit=max_new_tokens, finished=True)
        judgement, notes = judge_with_causes(
            model_source, probes, sampled, backend, asking, diagnose
        )
        notes += tuple(backend.notes)
    comparison = None
    if compare is not None:
        other = _find_other_model_and_probes(compare, model_source, probes, base, settings)
        comparison = _sample_and_compare_other_model(other, sampling_pass, files, asking)
    return SampleReport(
        spec=probes.spec.model_copy(update={"data": files}),
        subjects=(describe_subject(model_source, probes, chosen, asking, backend.kind),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        looks=(sampling_pass,),
        limit=max_new_tokens,
        unanswered=unanswered_prompts(chosen.prompts, sampling_pass),
        compared=comparison,
        notes=(*_warnings_about_prompts(model_source, probes, chosen), *notes),
        min_success=min_success,
    )


def sample_and_score_answers(
    backend: Backend,
    probes: Probes,
    prompts: Sequence[Prompt],
    asking: SamplingSettings,
    step: int = 0,
) -> SamplingPass:
    """The answers of a model with their scores.

    Args:
        backend: the model.
        probes: its tokenizer and template.
        prompts: what is asked.
        asking: how.
        step: of the checkpoint that is asked.

    Raises:
        UsageError: no prompt got an answer, or the backend does not take a min_p that is asked for.
    """
    if asking.min_p and not backend.takes_min_p:
        raise UsageError(
            f"{backend.name}: the backend {backend.kind} does not draw with min_p; leave it out"
        )
    started = time.perf_counter()
    decoding = asking.decoding_that_ends_at(serving_stops(probes.tokenizer))
    answers = backend.answers(
        prompts, decoding, asking.progress_callback_for_task(f"asking {backend.name}")
    )
    control = control_token_texts(probes.tokenizer)
    # A backend gives None for a prompt that it can't take: one that is too long, say.
    scored = [
        Sample(prompt, answer, score_answer(prompt, answer, control=control, parse=asking.parse))
        for prompt, answer in zip(prompts, answers, strict=True)
        if answer is not None
    ]
    samples = mark_whether_answers_give_reference(mark_identical_answers(scored))
    if not samples:
        raise UsageError(
            f"{backend.name}: no prompt got an answer:"
            f" {'; '.join(backend.notes) or 'no reason is known'}"
        )
    return SamplingPass(step, samples, time.perf_counter() - started)


def judge_with_causes(
    model_source: ModelSource,
    probes: Probes,
    sampled: SampledRun,
    backend: Backend,
    asking: SamplingSettings,
    diagnose: bool | None,
) -> tuple[Judgement, tuple[str, ...]]:
    """What the rules say of the answers.

    Args:
        model_source: the model.
        probes: its tokenizer and template.
        sampled: the answers; causes are looked for of the last pass.
        backend: the model, loaded.
        asking: how it was asked.
        diagnose: look for causes where answers fail (None), always or never.

    Returns:
        (findings that name a cause first, then those that they do not explain; notes on what could not be asked)
    """
    symptoms = judge_answers(sampled, probes.spec)
    sampling_pass = sampled.looks[-1]
    if not should_look_for_causes_of_failures(sampling_pass, sampled.limit, diagnose):
        return symptoms, ()
    evidence = gather_evidence(
        model_source,
        probes,
        [sample.prompt for sample in sampling_pass.samples],
        sampling_pass,
        backend,
        options=asking.options,
        limit=sampled.limit,
        temperature=asking.temperature,
        progress=asking.progress_callback_for_task("asking why"),
    )
    found_causes = find_causes(evidence, probes.spec)
    # Findings of the rank 0 are worth knowing, and explain nothing.
    causes = [finding for finding in found_causes.findings if RANK[finding.severity]]
    cause_codes = {finding.code for finding in causes}
    all_findings = (*symptoms.findings, *found_causes.findings)
    # One fault, one finding: a symptom that a cause explains would be a second alarm for the same.
    others = sort_findings(
        finding
        for finding in all_findings
        if finding.code not in cause_codes and not is_symptom_explained(finding, causes)
    )
    judgement = Judgement.of([symptoms, found_causes])
    return replace(judgement, findings=(*causes, *others)), evidence.notes


def has_failures(sampling_pass: SamplingPass, limit: int) -> bool:
    """Is there an answer that is not good, or none that can be told?"""
    verdicts = [is_good_answer(sample, limit) for sample in sampling_pass.samples]
    return False in verdicts or True not in verdicts


def should_look_for_causes_of_failures(
    sampling_pass: SamplingPass, limit: int, diagnose: bool | None
) -> bool:
    """Are causes looked for? `diagnose` is what the user has said; where that is nothing, if answers fail."""
    return has_failures(sampling_pass, limit) if diagnose is None else diagnose


def unanswered_prompts(
    prompts: Sequence[Prompt], sampling_pass: SamplingPass
) -> tuple[Prompt, ...]:
    """The prompts that got no answer."""
    answered = {sample.prompt.ids for sample in sampling_pass.samples}
    return tuple(prompt for prompt in prompts if prompt.ids not in answered)


def describe_subject(
    model_source: ModelSource,
    probes: Probes,
    chosen: ChosenPrompts,
    asking: SamplingSettings,
    kind: str,
) -> Subject:
    """What was asked, and how, as the subject of a report; `kind` is that of the backend."""
    tokenizer = probes.tokenizer
    stops = [
        f"{tokenizer.backend.id_to_token(id)} ({id})" for id in sorted(serving_stops(tokenizer))
    ]
    facts = {"by": kind}
    if model_source.base:
        facts["base"] = model_source.base.name
    facts["prompts"] = chosen.describe_count_and_source()
    facts["stops at"] = ", ".join(stops) or "no token"
    facts["answers"] = asking.describe_decoding_in_few_words()
    if not chosen.recorded:
        facts["trained on"] = "not known"
    return Subject(model_source.kind, model_source.name, tuple(facts.items()))


def _warnings_about_prompts(
    model_source: ModelSource, probes: Probes, chosen: ChosenPrompts
) -> Iterator[str]:
    """What makes answers look worse or better than they are."""
    if not serving_stops(probes.tokenizer):
        yield (
            f"{model_source.name}: neither generation_config.json nor config.json nor the tokenizer names"
            " a stop token, so every answer hits max_new_tokens"
        )
    seen = sum(prompt.seen for prompt in chosen.prompts)
    if seen:
        yield (
            f"{seen} of {len(chosen.prompts)} prompts were trained on: what a model says to new ones"
            " may be worse"
        )


@dataclass(frozen=True)
class _OtherModel:
    """The other model of a comparison, which is asked the same rows, and how it is asked."""

    name: str
    source: ModelSource
    probes: Probes
    """Its own tokenizer and template, where it has a template"""
    notes: tuple[str, ...]
    same_kind: bool
    """A backend that is named for the first model can open it"""


def _find_other_model_and_probes(
    name: str, model_source: ModelSource, probes: Probes, base: str | None, settings: dict[str, Any]
) -> _OtherModel:
    """The model to compare with; one without a template is asked with that of the first.

    Args:
        name: of the other model.
        model_source: the first model.
        probes: its tokenizer and template.
        base: of an adapter that is named.
        settings: those of RunSpec, for both.
    """
    source = _find_other_source(name, model_source, base)
    other_probes, notes = source.prepared(**settings), list[str]()
    # Bases have no chat template: as bare text they would answer another question than the tuned model.
    if other_probes.template is None and probes.template is not None:
        source = find_model_source(
            name,
            tokenizer=str(model_source.tokenizer),
            base=base if source.kind == "adapter" else None,
        )
        other_probes = source.prepared(**settings)
        notes.append(f"{name} has no template: it is asked with that of {model_source.name}")
    return _OtherModel(name, source, other_probes, tuple(notes), source.kind == model_source.kind)


def _sample_and_compare_other_model(
    other: _OtherModel, sampling_pass: SamplingPass, files: Sequence[str], asking: SamplingSettings
) -> SampleComparison:
    """The answers of another model to the same rows, beside those of the first.

    Args:
        other: the model that is asked.
        sampling_pass: the answers of the first model.
        files: of the rows.
        asking: how the first was asked.
    """
    prompts = [sample.prompt for sample in sampling_pass.samples]
    rebuilt = rebuild_prompts_for_other_model(other.probes, prompts, files)
    pairs = [
        (sample, prompt)
        for sample, prompt in zip(sampling_pass.samples, rebuilt, strict=True)
        if prompt is not None
    ]
    if not pairs:
        raise UsageError(
            f"{other.name}: none of the {len(prompts)} rows gives a prompt with its tokenizer and"
            " template"
        )
    notes = [*other.notes, *_notes_on_differing_prompts(other.name, pairs, len(prompts))]
    options = asking.options if other.same_kind else replace(asking.options, backend=None)
    with open_backend(other.source, other.probes.tokenizer, options) as backend:
        other_look = sample_and_score_answers(
            backend, other.probes, [prompt for _, prompt in pairs], asking
        )
        notes += backend.notes
    other_by_row = {sample.prompt.row: sample for sample in other_look.samples}
    answered = [
        (sample, other_by_row[prompt.row]) for sample, prompt in pairs if prompt.row in other_by_row
    ]
    return compare_model_answers(other.name, answered, asking.max_new_tokens, notes)


def _notes_on_differing_prompts(
    name: str, pairs: Sequence[tuple[Sample, Prompt]], prompts: int
) -> Iterator[str]:
    """In what the two models were asked differently, of so many prompts."""
    missing = prompts - len(pairs)
    if missing:
        yield f"{missing} of {prompts} rows give {name} no prompt, and are not compared"
    differing = sum(sample.prompt.text != prompt.text for sample, prompt in pairs)
    if differing:
        yield (
            f"{differing} of {len(pairs)} prompts differ: each model is asked by its own template"
        )
    elif any(sample.prompt.ids != prompt.ids for sample, prompt in pairs):
        yield "the prompts are the same text and have other ids: the tokenizers differ"


def _find_other_source(name: str, model_source: ModelSource, base: str | None) -> ModelSource:
    """The model to compare with, by its own files, or else with tokenizer or base of the first model.

    Raises UsageError where nothing of that makes it a model.
    """
    tokenizer = str(model_source.tokenizer)
    base = base or (str(model_source.base) if model_source.base else None)
    try:
        return find_model_source(name)
    except UsageError as first:
        # With as little as possible of the other's: a checkpoint often lacks the tokenizer alone.
        for parts in (
            {"tokenizer": tokenizer},
            {"base": base},
            {"tokenizer": tokenizer, "base": base},
        ):
            try:
                return find_model_source(name, **parts)
            except TruetuneError:
                continue
        raise first
