"""sample: what a model answers to held-out rows, how well, and where it fails, why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truetune.checks.find_causes import find_causes, is_explained
from truetune.checks.findings import RANK, in_order
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Subject
from truetune.errors import TruetuneError, UsageError
from truetune.evaluation.asked import Asked, again, asked, columns_of, data_of
from truetune.evaluation.compare import Compared, compared
from truetune.evaluation.inquest import inquire
from truetune.evaluation.report import SampleReport
from truetune.generation.answer_parsers import Parser, make_parser
from truetune.generation.answer_samples import Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.answer_verdicts import good
from truetune.generation.backends.backend import Backend, Decoding
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.build_prompts import control_token_texts
from truetune.generation.identical_answers import mark_identical_answers
from truetune.generation.score_answer import score_answer
from truetune.render.probes import Probes

PLAIN = Options()
Progress = Callable[[str, int, int], None]
"""Is told what is done, and how much of how much"""


@dataclass(frozen=True, slots=True)
class Asking:
    """How models are asked, and their answers read."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    parse: Parser | None = None
    options: Options = PLAIN
    progress: Progress | None = None

    def decoding(self, stops: frozenset[int]) -> Decoding:
        return Decoding(stops, self.max_new_tokens, self.temperature, self.top_p, self.seed)

    def tell(self, what: str) -> Callable[[int, int], None] | None:
        """Progress on one thing."""
        progress = self.progress
        return None if progress is None else lambda done, total: progress(what, done, total)

    def fact(self) -> str:
        """In a few words."""
        how = (
            f"temperature {self.temperature:g}, seed {self.seed}" if self.temperature else "greedy"
        )
        return f"{how}, at most {self.max_new_tokens:,} new tokens"


def sample(
    name: str,
    data: Sequence[str] = (),
    *,
    count: int = 20,
    seed: int = 0,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    parser: str | None = None,
    compare: str | None = None,
    min_success: float | None = None,
    all_rows: bool = False,
    diagnose: bool | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options = PLAIN,
    progress: Progress | None = None,
    **settings: Any,
) -> SampleReport:
    """Ask a model `count` questions of `data` (else of the rows that its run held out), and judge the answers.

    `name` and `compare`, another model for the same rows, are what `find_model_source` takes; `settings` are those of
    RunSpec. `diagnose`: ask why answers fail, where some do (None), always or never. Raises UsageError, SpecError,
    DataError, TokenizerError or TemplateError.
    """
    started = time.perf_counter()
    parse = make_parser(parser) if parser else None
    place = find_model_source(name, base=base, tokenizer=tokenizer)
    if compare is not None:
        _placed(compare, place, base)  # a name that is none is said before anything is asked
    files = data_of(place.run, data)
    settings = columns_of(place.run, files) | settings
    probes = place.prepared(**settings)
    found = asked(place, probes, files, count, seed=seed, all_rows=all_rows)
    asking = Asking(max_new_tokens, temperature, top_p, seed, parse, options, progress)
    with open_backend(place, probes.tokenizer, options) as backend:
        look = ask_model(backend, probes, found.prompts, asking)
        watched = SampledRun((look,), limit=max_new_tokens, finished=True)
        judged, notes = judgement_with_causes(place, probes, watched, backend, asking, diagnose)
        notes += tuple(backend.notes)
    beside = (
        None
        if compare is None
        else _beside(compare, place, probes, look, files, asking, base, settings)
    )
    return SampleReport(
        spec=probes.spec.model_copy(update={"data": files}),
        subjects=(subject(place, probes, found, asking, backend.kind),),
        findings=judged.findings,
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        looks=(look,),
        limit=max_new_tokens,
        unanswered=unanswered(found.prompts, look),
        compared=beside,
        notes=(*_warned(place, probes, found), *notes),
        min_success=min_success,
    )


def ask_model(
    backend: Backend, probes: Probes, prompts: Sequence[Prompt], asking: Asking, step: int = 0
) -> SamplingPass:
    """The answers of a model with their scores. Raises UsageError where there are none."""
    started = time.perf_counter()
    decoding = asking.decoding(serving_stops(probes.tokenizer))
    answers = backend.answers(prompts, decoding, asking.tell(f"asking {backend.name}"))
    control = control_token_texts(probes.tokenizer)
    samples = mark_identical_answers(
        [
            Sample(
                prompt, answer, score_answer(prompt, answer, control=control, parse=asking.parse)
            )
            for prompt, answer in zip(prompts, answers, strict=True)
            if answer is not None
        ]
    )
    if not samples:
        raise UsageError(
            f"{backend.name}: no prompt got an answer:"
            f" {'; '.join(backend.notes) or 'no reason is known'}"
        )
    return SamplingPass(step, samples, time.perf_counter() - started)


def judgement_with_causes(
    place: ModelSource,
    probes: Probes,
    watched: SampledRun,
    backend: Backend,
    asking: Asking,
    diagnose: bool | None,
) -> tuple[Judgement, tuple[str, ...]]:
    """What the rules say, findings that name a cause first; and what could not be asked."""
    symptoms = judge_answers(watched, probes.spec)
    look = watched.looks[-1]
    if not (failing(look, watched.limit) if diagnose is None else diagnose):
        return symptoms, ()
    prompts = [sample.prompt for sample in look.samples]
    inquest = inquire(
        place,
        probes,
        prompts,
        look,
        backend,
        options=asking.options,
        limit=watched.limit,
        temperature=asking.temperature,
        progress=asking.tell("asking why"),
    )
    found = find_causes(inquest, probes.spec)
    causes = [finding for finding in found.findings if RANK[finding.severity]]
    known = {finding.code for finding in causes}
    all_findings = (*symptoms.findings, *found.findings)
    others = in_order(
        f for f in all_findings if f.code not in known and not is_explained(f, causes)
    )
    return replace(Judgement.of([symptoms, found]), findings=(*causes, *others)), inquest.notes


def failing(look: SamplingPass, limit: int) -> bool:
    """Is there an answer that is not good, or none that can be told?"""
    told = [good(sample, limit) for sample in look.samples]
    return False in told or True not in told


def unanswered(prompts: Sequence[Prompt], look: SamplingPass) -> tuple[Prompt, ...]:
    """Those that got no answer."""
    told = {sample.prompt.ids for sample in look.samples}
    return tuple(prompt for prompt in prompts if prompt.ids not in told)


def subject(place: ModelSource, probes: Probes, found: Asked, asking: Asking, kind: str) -> Subject:
    """What was asked, and how."""
    tokenizer = probes.tokenizer
    stops = [
        f"{tokenizer.backend.id_to_token(id)} ({id})" for id in sorted(serving_stops(tokenizer))
    ]
    facts = {
        "by": kind,
        **({"base": place.base.name} if place.base else {}),
        "prompts": found.fact(),
        "stops at": ", ".join(stops) or "no token",
        "answers": asking.fact(),
        **({} if found.recorded else {"trained on": "not known"}),
    }
    return Subject(place.kind, place.name, tuple(facts.items()))


def _warned(place: ModelSource, probes: Probes, found: Asked) -> Iterator[str]:
    if not serving_stops(probes.tokenizer):
        yield (
            f"{place.name}: neither generation_config.json nor config.json nor the tokenizer names"
            " a stop token, so every answer runs to the limit"
        )
    if seen := sum(prompt.seen for prompt in found.prompts):
        yield (
            f"{seen} of {len(found.prompts)} prompts were trained on: what a model says to new ones"
            " may be worse"
        )


def _beside(
    name: str,
    place: ModelSource,
    probes: Probes,
    look: SamplingPass,
    files: Sequence[str],
    asking: Asking,
    base: str | None,
    settings: dict[str, Any],
) -> Compared:
    """The answers of another model to the same rows."""
    other = _placed(name, place, base)
    theirs, notes = other.prepared(**settings), []
    if theirs.template is None and probes.template is not None:
        other = find_model_source(
            name, tokenizer=str(place.tokenizer), base=base if other.kind == "adapter" else None
        )
        theirs = other.prepared(**settings)
        notes.append(f"{name} has no template: it is asked with that of {place.name}")
    prompts = [sample.prompt for sample in look.samples]
    made = again(theirs, prompts, files)
    asked_both = [
        (sample, prompt)
        for sample, prompt in zip(look.samples, made, strict=True)
        if prompt is not None
    ]
    if not asked_both:
        raise UsageError(
            f"{name}: none of the {len(prompts)} rows gives a prompt with its tokenizer and"
            " template"
        )
    if missing := len(prompts) - len(asked_both):
        notes.append(
            f"{missing} of {len(prompts)} rows give {name} no prompt, and are not compared"
        )
    if parted := sum(sample.prompt.text != prompt.text for sample, prompt in asked_both):
        notes.append(
            f"{parted} of {len(asked_both)} prompts differ: each model is asked by its own template"
        )
    elif any(sample.prompt.ids != prompt.ids for sample, prompt in asked_both):
        notes.append("the prompts are the same text and have other ids: the tokenizers differ")
    options = asking.options if other.kind == place.kind else replace(asking.options, backend=None)
    with open_backend(other, theirs.tokenizer, options) as backend:
        seen = ask_model(backend, theirs, [prompt for _, prompt in asked_both], asking)
        notes += backend.notes
    said = {sample.prompt.row: sample for sample in seen.samples}
    pairs = [(sample, said[prompt.row]) for sample, prompt in asked_both if prompt.row in said]
    return compared(name, pairs, asking.max_new_tokens, notes)


def _placed(name: str, place: ModelSource, base: str | None) -> ModelSource:
    """With a tokenizer and a base of its own, or else with those of the model that it is compared with."""
    ours = {
        "tokenizer": str(place.tokenizer),
        "base": base or (str(place.base) if place.base else None),
    }
    try:
        return find_model_source(name)
    except UsageError as first:
        for part in ({"tokenizer": ours["tokenizer"]}, {"base": ours["base"]}, ours):
            try:
                return find_model_source(name, **part)
            except TruetuneError:
                continue
        raise first
