"""Scores answers that somebody else's code made, with the verdicts of `truetune sample`.

The same scorer and the same rules judge them. No model and no tokenizer is needed: lengths are in words, and what
only a model tells (the probability of stopping, the perplexity) is not judged. What ended an answer is known where the
rows say it. The trade-off: a word is not a token, so that lengths are comparable with each other and with no limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from truetune.checks.answers.most_answers_are_wrong import describe_label_scores
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Subject
from truetune.checks.rule import EvaluationRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.read_predictions import (
    Messages,
    Prediction,
    ReadPredictions,
    fill_prompts_and_references_from_rows,
    predictions_from_lists,
    read_predictions,
)
from truetune.errors import UsageError
from truetune.evaluation.find_reading_behind_scores_beside_predictions import (
    FigureBeside,
    count_right_answers_in_usual_ways,
    explain_scores_found_beside,
    is_same_share,
    right_answer_shares_in_files_beside,
)
from truetune.evaluation.judge_files_on_two_models import (
    count_scored_right,
    judge_equal_answers_of_other_model,
)
from truetune.evaluation.sample_report import SampleReport
from truetune.evaluation.try_parser import add_model_answers, try_parser
from truetune.generation.answer_parsers_named_by_user import JSON_PARSER, Parser, make_parser
from truetune.generation.answer_samples import (
    NO_LIMIT,
    Answer,
    Chat,
    Prompt,
    Sample,
    SampledRun,
    SamplingPass,
)
from truetune.generation.answers_continued_by_dialogue_turns import (
    find_continued_dialogues,
    find_turns_behind_answer,
)
from truetune.generation.evaluation_loss_and_score_types import EvaluationResults
from truetune.generation.find_answers_beside_wrong_rows import row_order_of
from truetune.generation.find_answers_cut_at_one_length import excuse_length_where_limit_cut_answers
from truetune.generation.find_lost_word_order import find_answers_with_lost_word_order
from truetune.generation.identical_answers import mark_identical_answers
from truetune.generation.json_faults_of_answers import are_references_json, json_fault
from truetune.generation.labels_said_by_answers import (
    LabelScores,
    mark_whether_answers_give_reference,
    score_labels,
)
from truetune.generation.parser_selftest_results import ParserSelftest
from truetune.generation.prompt_left_in_predictions import (
    answers_behind_repeated_prompts,
    find_prompt_in_front,
)
from truetune.generation.score_answer_by_prompt_and_reference import score_answer as score_answer
from truetune.generation.split_words import split_words
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

# Answers in a list have no file to be called by.
LIST_NAME = "predictions"
"""What a report calls answers that came as lists"""
LABEL_INSIDE_ANOTHER_RULE = "answers-give-label-containing-reference"
EXACT_MATCH_RULE = "exact-match-measures-form"
READ_AS_JSON = (
    "the references are JSON, so the answers are read as JSON (--parser json), and one that is none counts as"
    " wrong"
)
PredictionInputs = Iterable[str | Mapping[str, Any] | Prediction]


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreReport(SampleReport):
    """The verdicts on answers that somebody else's code made: a SampleReport without a model."""

    proof: ParserSelftest | None = None
    """What the parser that is named makes of the references"""
    labels: LabelScores | None = None
    """Of the last step, where the references are a few labels"""

    def more(self) -> dict[str, Any]:
        """As of a SampleReport, without what only a model has."""
        values = super().more()
        # Ids here only stand for words and rows.
        for sample in values["sample"]["samples"]:
            sample.update({"prompt_ids": [], "answer_ids": [], "reference_ids": []})
        values["sample"]["limit"] = None if self.limit == NO_LIMIT else self.limit
        values["sample"]["parser"] = None if self.proof is None else str(self.proof)
        values["sample"]["labels"] = None if self.labels is None else self.labels.plain()
        return values


def score(
    predictions: str | PathLike[str] | PredictionInputs,
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

    Args:
        predictions: a JSONL, JSON, CSV or Parquet file, or a list of texts, rows or `Prediction`s.
        prompts: texts or messages, as many as a list of predictions has.
        references: as many.
        steps: as many.
        stopped: as many: did it end by itself?
        data: rows that have the prompts and references instead.
        columns: maps our names of a file's columns to yours: {"prediction": "resp"}.
        parser: that of `truetune.sample`.
        max_new_tokens: where answers were cut.
        min_success: the share that must be good.
        settings: select, ignore, fail_on and allow_unjudged.

    Raises:
        TruetuneError: what is named can't be read or used, or there is no prediction.
    """
    # A single path is a sequence of characters too.
    row_files = [fspath(path) for path in ([data] if isinstance(data, str | PathLike) else data)]
    started = time.perf_counter()
    parse = make_parser(parser) if parser else None
    spec = validate_settings(settings, "truetune.score")
    is_file = isinstance(predictions, str | PathLike)
    if isinstance(predictions, str | PathLike):
        name = fspath(predictions)
        read = read_predictions([name], columns, look_beside=not row_files)
        files, figures = (name, *row_files), right_answer_shares_in_files_beside(Path(name))
    else:
        name = LIST_NAME
        listed = predictions_from_lists(
            predictions, prompts, references, steps=steps, stopped=stopped
        )
        read = ReadPredictions(listed, {})
        files, figures = tuple(row_files), []
    all_predictions = _fill_prompts_and_references_from_files(read, row_files)
    has_parser = parser is not None
    if parse is None and _are_json_answers(all_predictions):
        # Otherwise answers that are no JSON would count neither as right nor as wrong.
        parser, parse = JSON_PARSER, make_parser(JSON_PARSER)
    looks = tuple(build_scored_passes_by_step(all_predictions, parse))
    limit = NO_LIMIT if max_new_tokens is None else max_new_tokens
    selftest = _try_parser_on_references(parse, parser, looks[-1])
    labels = score_labels(*_answers_and_references(looks[-1]))
    judgement = Judgement.of(
        [
            _without_exact_match_note(
                judge_answers(SampledRun(looks, limit=limit, finished=True), spec), name, looks[-1]
            ),
            # Rules on parsers judge what a user chose, and not what was taken for want of a choice.
            _judge_parser(selftest if has_parser else None, looks[-1], spec),
            judge_equal_answers_of_other_model(name, spec) if is_file else Judgement(),
            Judgement(not_judged=tuple(_list_unjudged(read, selftest, parser))),
        ]
    )
    return ScoreReport(
        spec=spec.model_copy(update={"data": files}),
        subjects=(_describe_subject(name, all_predictions, read),),
        findings=_warn_where_own_score_counts_labels(judgement.findings, labels, figures),
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        looks=looks,
        limit=limit,
        notes=(
            *_make_notes(all_predictions, selftest),
            *(() if has_parser or parser is None else (READ_AS_JSON,)),
            *_describe_readings_and_own_scores(looks[-1], labels, figures),
        ),
        labels=labels,
        min_success=min_success,
        proof=selftest,
    )


def _fill_prompts_and_references_from_files(
    read: ReadPredictions, row_files: Sequence[str]
) -> Sequence[Prediction]:
    """The predictions that were read, with the prompts and references of row files."""
    filled = (
        fill_prompts_and_references_from_rows(read.predictions, row_files)
        if row_files
        else read.predictions
    )
    if not filled:
        raise UsageError("truetune.score: there is no prediction to judge")
    return filled


def _answers_and_references(sampling_pass: SamplingPass) -> tuple[list[str], list[str]]:
    """The answers of a pass, and their references."""
    return (
        [sample.answer.text for sample in sampling_pass.samples],
        [sample.prompt.reference for sample in sampling_pass.samples],
    )


def _are_json_answers(predictions: Sequence[Prediction]) -> bool:
    """Are the references JSON, and most answers as well? Where JSON stands in prose, another rule says it."""
    if not are_references_json([one.reference for one in predictions]):
        return False
    return 2 * sum(json_fault(one.text) is None for one in predictions) > len(predictions)


def _without_exact_match_note(
    judgement: Judgement, name: str, sampling_pass: SamplingPass
) -> Judgement:
    """What the rules say, without the note that exact match measures the form where the user's own script reads it.

    A column of 0 and 1 that counts more answers as right than are their reference word for word shows that it does.
    """
    if name == LIST_NAME or not any(one.rule == EXACT_MATCH_RULE for one in judgement.findings):
        return judgement
    scored = count_scored_right(name)
    exact = sum(sample.scores.exact is True for sample in sampling_pass.samples)
    if scored is None or scored <= exact:
        return judgement
    kept = (
        one for one in judgement.findings if (one.rule, one.severity) != (EXACT_MATCH_RULE, "info")
    )
    return replace(judgement, findings=tuple(kept))


def build_scored_passes_by_step(
    predictions: Sequence[Prediction], parse: Parser | None = None
) -> Iterator[SamplingPass]:
    """The predictions with their scores, those of each step together, by step.

    Args:
        predictions: of all steps.
        parse: reads answers and references.
    """
    # Over all steps, so that an answer can be compared with an earlier one to the same prompt.
    prompt_numbers: dict[tuple[str, str], int] = {}
    for step in sorted({prediction.step for prediction in predictions}):
        of_step = _remove_decoded_prompts([one for one in predictions if one.step == step])
        built = [build_sample(one, row, prompt_numbers, parse) for row, one in enumerate(of_step)]
        samples = mark_whether_answers_give_reference(
            mark_identical_answers(_mark_continued_dialogues(built))
        )
        ordered = _mark_references_of_other_rows(_mark_lost_word_order(samples))
        yield SamplingPass(step, excuse_length_where_limit_cut_answers(ordered, NO_LIMIT), 0.0)


def _remove_decoded_prompts(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions of one step, without the prompts that were decoded with them.

    Otherwise every rule would blame the model for the text of its prompt.
    """
    in_front = find_prompt_in_front(
        [one.text for one in predictions],
        [one.question for one in predictions],
        [one.reference for one in predictions],
    )
    answers = (
        in_front.answers if in_front is not None else _texts_behind_repeated_prompts(predictions)
    )
    return [
        one if answer is None else replace(one, text=answer, has_prompt=True)
        for one, answer in zip(predictions, answers, strict=True)
    ]


def _texts_behind_repeated_prompts(predictions: Sequence[Prediction]) -> tuple[str | None, ...]:
    """What stands behind the prompts of those predictions that begin with all of their own."""
    return answers_behind_repeated_prompts(
        [one.text for one in predictions],
        [_turns_before_answer(one) for one in predictions],
        [one.reference for one in predictions],
    )


def _turns_before_answer(prediction: Prediction) -> list[str]:
    """What was said before an answer, turn by turn."""
    if isinstance(prediction.prompt, str):
        return [prediction.prompt]
    contents = (message.get("content") for message in prediction.prompt)
    return [content for content in contents if isinstance(content, str)]


def _mark_continued_dialogues(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of one step, with the labels of speakers among `Scores.markers` where an answer continues with a
    dialogue that its reference does not hold."""
    found = find_continued_dialogues(
        [(sample.prompt.question, sample.answer.text) for sample in samples]
    )
    marked = list(samples)
    for number, turns in found.items():
        sample = samples[number]
        if find_turns_behind_answer(sample.prompt.question, sample.prompt.reference) is not None:
            continue
        markers = tuple(dict.fromkeys((*sample.scores.markers, *turns.written)))
        marked[number] = replace(sample, scores=replace(sample.scores, markers=markers))
    return marked


def _mark_lost_word_order(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of one step, with `Scores.garbage` where the words of the references have lost their order."""
    lost = find_answers_with_lost_word_order(
        [sample.answer.text for sample in samples],
        [sample.prompt.reference for sample in samples],
        [sample.prompt.question for sample in samples],
    )
    return tuple(
        replace(sample, scores=replace(sample.scores, garbage=True)) if row in lost else sample
        for row, sample in enumerate(samples)
    )


def _mark_references_of_other_rows(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of one step, with `Scores.elsewhere` where they give the references of other rows."""
    order = row_order_of(samples)
    targets = order.targets if order else {}
    return tuple(
        replace(sample, scores=replace(sample.scores, elsewhere=True)) if row in targets else sample
        for row, sample in enumerate(samples)
    )


def build_sample(
    prediction: Prediction,
    row: int,
    prompt_numbers: dict[tuple[str, str], int] | None = None,
    parse: Parser | None = None,
) -> Sample:
    """One prediction with its scores.

    Args:
        prediction: what was read.
        row: its number in its step.
        prompt_numbers: numbers the prompts, so that those of several steps are known again.
        parse: reads answers and references.
    """
    question, reference = prediction.question, prediction.reference
    # Without prompt and reference nothing tells rows apart but their place.
    key = (question, reference) if question or reference else (str(row), "")
    number = row
    if prompt_numbers is not None:
        number = prompt_numbers.setdefault(key, len(prompt_numbers))
    # Ids that stand for words: the scorer compares lengths, and a reference has a stop token besides.
    reference_ids = (0,) * (len(split_words(reference)) + 1 if reference else 0)
    chat = None if isinstance(prediction.prompt, str) else Chat(tuple(prediction.prompt))
    prompt = Prompt(
        (number,),
        question,
        reference,
        reference_ids,
        prediction.file,
        prediction.line,
        chat=chat,
        row=row,
    )
    answer = Answer(
        (0,) * len(split_words(prediction.text)),
        prediction.text,
        # Any id: an answer that is not known to be cut counts as one that stopped.
        None if prediction.stopped is False else 0,
        has_prompt=prediction.has_prompt,
    )
    scores = score_answer(prompt, answer, parse=parse)
    return Sample(prompt, answer, replace(scores, end_known=prediction.stopped is not None))


def _try_parser_on_references(
    parse: Parser | None, name: str | None, sampling_pass: SamplingPass
) -> ParserSelftest | None:
    """What the parser makes of the references, and of the answers; None without a parser or a reference."""
    with_reference = [sample for sample in sampling_pass.samples if sample.prompt.reference.strip()]
    if parse is None or name is None or not with_reference:
        return None
    golds = [sample.prompt.reference for sample in with_reference]
    questions = [sample.prompt.question for sample in with_reference]
    selftest = try_parser(parse, golds, name=name, questions=questions)
    answers = [sample.answer.text for sample in with_reference]
    return add_model_answers(selftest, parse, golds, answers)


def _judge_parser(
    proof: ParserSelftest | None, sampling_pass: SamplingPass, spec: RunSpec
) -> Judgement:
    """What the rules on parsers say."""
    if proof is None:
        return Judgement()
    # The other rules on evaluations need losses, which nobody has measured here.
    rules = [rule for rule in choose_rules(spec, EvaluationRule) if rule.of_parser]
    return run_rules(EvaluationResults(len(sampling_pass.samples), parser=proof), rules)


def _list_unjudged(
    read: ReadPredictions, selftest: ParserSelftest | None, parser: str | None
) -> Iterator[NotJudged]:
    """What was not judged: lines and rows that were left out, and a parser that nothing could be
    tried on.
    """
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
    if parser is not None and selftest is None:
        yield NotJudged(
            "the parser",
            "there is no reference that it could be tried on",
            unlock="name the references",
        )


def _describe_subject(
    name: str, predictions: Sequence[Prediction], read: ReadPredictions
) -> Subject:
    """What was judged, and what was known of it."""
    known_ends = sum(prediction.stopped is not None for prediction in predictions)
    steps = {prediction.step for prediction in predictions}
    facts = {
        "answers": f"{len(predictions):,}",
        "with a prompt": f"{sum(bool(prediction.question) for prediction in predictions):,}",
        "with a reference": f"{sum(bool(prediction.reference) for prediction in predictions):,}",
        # A file that says no step has none.
        **({"steps": f"{len(steps):,}"} if steps != {0} else {}),
        "what ended them": f"known of {known_ends:,}" if known_ends else "not known",
    }
    if read.columns:
        facts["columns"] = ", ".join(f"{own} = {users}" for own, users in read.columns.items())
    return Subject("predictions", name, tuple(facts.items()))


def _describe_readings_and_own_scores(
    sampling_pass: SamplingPass, labels: LabelScores | None, figures: Sequence[FigureBeside]
) -> Iterator[str]:
    """How many are right by the usual readings, and what a script wrote beside the predictions."""
    if labels is not None:
        yield describe_label_scores(labels)
    if figures:
        yield from explain_scores_found_beside(
            figures,
            count_right_answers_in_usual_ways(*_answers_and_references(sampling_pass), labels),
        )


def _warn_where_own_score_counts_labels(
    findings: Sequence[Finding], labels: LabelScores | None, figures: Sequence[FigureBeside]
) -> tuple[Finding, ...]:
    """The findings, of which "a label inside another" becomes a warning where a score beside the
    predictions was made by `reference in answer`.
    """
    if labels is None or not figures:
        return tuple(findings)
    in_text, by_first = (
        right / labels.rows
        for right in (labels.right_count_by_substring, labels.right_count_by_first_label)
    )
    # Where both readings give the same figure, nothing tells which one made it.
    same = [one for one in figures if is_same_share(one.value, in_text)]
    if not same or is_same_share(in_text, by_first):
        return tuple(findings)
    source = f"{same[0].file} says {same[0].name} {same[0].value:.3g}, which is what `reference in answer` gives"
    return tuple(
        replace(one, severity="warning", evidence=(*one.evidence, source))
        if one.rule == LABEL_INSIDE_ANOTHER_RULE
        else one
        for one in findings
    )


def _make_notes(
    predictions: Sequence[Prediction], selftest: ParserSelftest | None
) -> Iterator[str]:
    """What a reader of the verdicts should know."""
    if selftest is not None:
        yield str(selftest)
    if not any(prediction.reference for prediction in predictions):
        yield (
            "there is no reference: whether the answers are right, or as long as they should be, is not"
            " known"
        )
        return
    stop_tokens = [one.stop_tokens for one in predictions if one.stop_tokens]
    if stop_tokens:
        most_frequent = max(stop_tokens, key=stop_tokens.count)
        yield (
            f"{len(stop_tokens):,} of {len(predictions):,} predictions have marks of the tokenizer after their"
            f" answer, from {most_frequent!r} on, which are left out here: a script that compares texts counts them"
            " as wrong (decode with skip_special_tokens=True)"
        )
    empty = sum(not prediction.reference.strip() for prediction in predictions)
    if empty:
        yield (
            f"{empty:,} of {len(predictions):,} rows have no reference (empty or missing): a score over all rows counts"
            " them as wrong; here they are left out of it"
        )
