"""score: the verdicts of `truetune sample` on answers that somebody else's code made.

The same scorer and the same rules judge them. No model and no tokenizer is needed: lengths are in words, and what
only a model tells (the probability of stopping, the perplexity) is not judged. What ended an answer is known where the
rows say it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Subject
from truetune.checks.rule import EvaluationRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.predictions import (
    Messages,
    Prediction,
    ReadPredictions,
    fill_from_rows,
    predictions_from_lists,
    read_predictions,
)
from truetune.errors import UsageError
from truetune.evaluation.parser_proof import after_answers, proof_of
from truetune.evaluation.report import SampleReport
from truetune.generation.answer_parsers import Parser, make_parser
from truetune.generation.answer_row_order import row_order_of
from truetune.generation.answer_samples import (
    NO_LIMIT,
    Answer,
    Chat,
    Prompt,
    Sample,
    SampledRun,
    SamplingPass,
)
from truetune.generation.evaluation_results import EvaluationResults
from truetune.generation.identical_answers import mark_identical_answers
from truetune.generation.parser_selftest import ParserSelftest
from truetune.generation.prompt_in_front import find_prompt_in_front
from truetune.generation.score_answer import score_answer as score_answer
from truetune.generation.split_words import split_words
from truetune.spec.files import spec_of
from truetune.spec.run import RunSpec

LISTS = "predictions"
"""What a report calls answers that came as lists"""
Texts = Iterable[str | Mapping[str, Any] | Prediction]


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreReport(SampleReport):
    """The verdicts on answers that somebody else's code made: a SampleReport without a model."""

    proof: ParserSelftest | None = None
    """What the parser that is named makes of the references"""

    def more(self) -> dict[str, Any]:
        made = super().more()
        for sample in made["sample"]["samples"]:
            sample.update({"prompt_ids": [], "answer_ids": [], "reference_ids": []})
        made["sample"]["limit"] = None if self.limit == NO_LIMIT else self.limit
        made["sample"]["parser"] = None if self.proof is None else str(self.proof)
        return made


def score(
    predictions: str | PathLike[str] | Texts,
    prompts: Sequence[str | Messages] | None = None,
    references: Sequence[str] | None = None,
    *,
    steps: Sequence[int] | None = None,
    stopped: Sequence[bool | None] | None = None,
    data: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    columns: Mapping[str, str] | None = None,
    parser: str | None = None,
    max_new_tokens: int | None = None,
    min_success: float | None = None,
    **settings: Any,
) -> ScoreReport:
    """Judge answers that your own code made, as `truetune.sample` judges those of a model; no model is needed.

    `predictions` is a JSONL, JSON, CSV or Parquet file, or a list of texts, rows or `Prediction`s. With a list,
    `prompts` (texts or messages), `references`, `steps` and `stopped` (did it end by itself?) are as long as it. `data`
    are rows that have the prompts and references instead, and `columns` maps our names of a file's columns to yours:
    {"prediction": "resp"}. `parser` is that of `truetune.sample`; `max_new_tokens` says where answers were cut, and
    `min_success` how many must be good. `settings` are select, ignore, fail_on and allow_unjudged.

    Raises a `truetune.errors.TruetuneError`.
    """
    rows = [fspath(path) for path in ([data] if isinstance(data, str | PathLike) else data)]
    started = time.perf_counter()
    parse = make_parser(parser) if parser else None
    spec = spec_of(settings, "truetune.score")
    if isinstance(predictions, str | PathLike):
        read = read_predictions([fspath(predictions)], columns)
        name = fspath(predictions)
    else:
        read = ReadPredictions(
            predictions_from_lists(predictions, prompts, references, steps=steps, stopped=stopped),
            {},
        )
        name = LISTS
    found = fill_from_rows(read.predictions, rows) if rows else read.predictions
    if not found:
        raise UsageError("truetune.score: there is no prediction to judge")
    looks = tuple(looks_of(found, parse))
    limit = NO_LIMIT if max_new_tokens is None else max_new_tokens
    proof = _proof(parse, parser, looks[-1])
    judged = Judgement.of([
        judge_answers(SampledRun(looks, limit=limit, finished=True), spec),
        _of_parser(proof, looks[-1], spec),
        Judgement(not_judged=tuple(_missing(read, proof, parser))),
    ])  # fmt: skip
    return ScoreReport(
        spec=spec.model_copy(update={"data": (name, *rows) if name != LISTS else tuple(rows)}),
        subjects=(_subject(name, found, read),),
        findings=judged.findings,
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        looks=looks,
        limit=limit,
        notes=tuple(_notes(found, proof)),
        min_success=min_success,
        proof=proof,
    )


def looks_of(
    predictions: Sequence[Prediction], parse: Parser | None = None
) -> Iterator[SamplingPass]:
    """The predictions with their scores, those of each step together, by step."""
    known: dict[tuple[str, str], int] = {}
    for step in sorted({prediction.step for prediction in predictions}):
        chosen = _without_prompts([one for one in predictions if one.step == step])
        samples = mark_identical_answers(
            [sample_of(one, row, known, parse) for row, one in enumerate(chosen)]
        )
        yield SamplingPass(step, _with_row_order(samples), 0.0)


def _without_prompts(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions of one step, without the prompts that were decoded with them.

    Otherwise every rule would blame the model for the text of its prompt.
    """
    found = find_prompt_in_front(
        [one.text for one in predictions],
        [one.question for one in predictions],
        [one.reference for one in predictions],
    )
    if found is None:
        return list(predictions)
    return [
        one if answer is None else replace(one, text=answer, has_prompt=True)
        for one, answer in zip(predictions, found.answers, strict=True)
    ]


def _with_row_order(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of one step, with `Scores.elsewhere` where they give the references of other rows."""
    order = row_order_of(samples)
    targets = order.targets if order else {}
    return tuple(
        replace(sample, scores=replace(sample.scores, elsewhere=True)) if row in targets else sample
        for row, sample in enumerate(samples)
    )


def sample_of(
    prediction: Prediction,
    row: int,
    known: dict[tuple[str, str], int] | None = None,
    parse: Parser | None = None,
) -> Sample:
    """One prediction with its scores. `known` numbers the prompts, so that those of several steps are known again."""
    asked = (prediction.question, prediction.reference)
    key = asked if any(asked) else (str(row), "")
    number = row if known is None else known.setdefault(key, len(known))
    length = len(split_words(prediction.reference)) + 1 if prediction.reference else 0
    chat = None if isinstance(prediction.prompt, str) else Chat(tuple(prediction.prompt))
    prompt = Prompt(
        (number,), *asked, (0,) * length, prediction.file, prediction.line, chat=chat, row=row
    )
    answer = Answer(
        (0,) * len(split_words(prediction.text)),
        prediction.text,
        None if prediction.stopped is False else 0,
        has_prompt=prediction.has_prompt,
    )
    scores = score_answer(prompt, answer, parse=parse)
    return Sample(prompt, answer, replace(scores, end_known=prediction.stopped is not None))


def _proof(parse: Parser | None, name: str | None, look: SamplingPass) -> ParserSelftest | None:
    """What the parser makes of the references, and of the answers; None without a parser or a reference."""
    known = [sample for sample in look.samples if sample.prompt.reference.strip()]
    if parse is None or name is None or not known:
        return None
    golds = [sample.prompt.reference for sample in known]
    proof = proof_of(
        parse, golds, name=name, questions=[sample.prompt.question for sample in known]
    )
    return after_answers(proof, parse, golds, [sample.answer.text for sample in known])


def _of_parser(proof: ParserSelftest | None, look: SamplingPass, spec: RunSpec) -> Judgement:
    """What the rules on parsers say."""
    if proof is None:
        return Judgement()
    rules = [rule for rule in choose_rules(spec, EvaluationRule) if rule.of_parser]
    return run_rules(EvaluationResults(len(look.samples), parser=proof), rules)


def _missing(
    read: ReadPredictions, proof: ParserSelftest | None, parser: str | None
) -> Iterator[NotJudged]:
    if read.broken:
        yield NotJudged(
            "broken lines",
            f"{len(read.broken):,} hold no row, the first: {read.broken[0]}",
            unlock="repair or remove them",
        )
    if read.without:
        yield NotJudged(
            "rows without a prediction",
            f"{read.without:,} hold nothing in `{read.columns['prediction']}`",
            unlock="write an empty text for an empty answer, or name the column with --map",
        )
    if parser is not None and proof is None:
        yield NotJudged(
            "the parser",
            "there is no reference that it could be tried on",
            unlock="name the references",
        )


def _subject(name: str, found: Sequence[Prediction], read: ReadPredictions) -> Subject:
    """What was judged, and what was known of it."""
    ends = sum(prediction.stopped is not None for prediction in found)
    facts = {
        "answers": f"{len(found):,}",
        "with a prompt": f"{sum(bool(prediction.question) for prediction in found):,}",
        "with a reference": f"{sum(bool(prediction.reference) for prediction in found):,}",
        "steps": f"{len({prediction.step for prediction in found}):,}",
        "what ended them": f"known of {ends:,}" if ends else "not known",
        **(
            {"columns": ", ".join(f"{ours} = {theirs}" for ours, theirs in read.columns.items())}
            if read.columns
            else {}
        ),
    }
    return Subject("predictions", name, tuple(facts.items()))


def _notes(found: Sequence[Prediction], proof: ParserSelftest | None) -> Iterator[str]:
    if proof is not None:
        yield str(proof)
    if not any(prediction.reference for prediction in found):
        yield (
            "there is no reference: nothing is said of whether the answers are right, or as long as"
            " they should be"
        )
        return
    ended = [prediction.stop_tokens for prediction in found if prediction.stop_tokens]
    if ended:
        yield (
            f"{len(ended):,} of {len(found):,} predictions end with {max(ended, key=ended.count)!r}, which is left"
            " out here: a script that compares texts counts them as wrong (decode with"
            " skip_special_tokens=True)"
        )
    empty = sum(not prediction.reference.strip() for prediction in found)
    if empty:
        yield (
            f"{empty:,} of {len(found):,} rows have no reference (empty or missing): a score over all rows counts"
            " them as wrong; here they are left out of it"
        )
