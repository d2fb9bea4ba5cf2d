"""Evaluates a model on held-out rows (its losses, whether it stops where answers end, how good its answers are), alone
or against another model.

Rows are scored by teacher forcing (losses and P(stop)), some of them are asked as prompts, and the parser is tried on
the references before it reads a model's answers. The rules on evaluations judge the results. The trade-off: both models
are loaded one after the other, never together, so that a second model costs time and no memory.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Subject
from truetune.checks.rule import EvaluationRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.errors import UsageError
from truetune.evaluation.are_stops_likely_only_at_answer_ends import measure_stop_calibration
from truetune.evaluation.average_answer_metrics import AnswerMetrics, measure_answers
from truetune.evaluation.choose_held_out_prompts import (
    find_held_out_files,
    recorded_format_and_column_names,
)
from truetune.evaluation.divide_evaluation_rows_by_trained_on import (
    EvaluationRows,
    encode_rows_and_choose_prompts,
    load_tokenizer_and_template_of_run,
)
from truetune.evaluation.evaluation_report import EvaluationReport
from truetune.evaluation.find_and_compare_other_model import (
    compare_right_answers,
    find_other_model,
    is_base_of,
)
from truetune.evaluation.held_out_token_losses import (
    RowLosses,
    RowSums,
    loss_changes,
    mean_losses,
    prompt_loss_change,
    sum_prompt_losses,
    sum_row_losses,
)
from truetune.evaluation.sample_model import Progress, SamplingSettings, sample_and_score_answers
from truetune.evaluation.try_parser import add_model_answers, try_parser
from truetune.generation.answer_parsers_named_by_user import Parser, make_parser
from truetune.generation.answer_samples import Sample
from truetune.generation.backends.backend import ScoredIds
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import DEFAULT_BACKENDS, Options, open_backend
from truetune.generation.evaluation_loss_and_score_types import (
    EvaluationResults,
    LossChange,
    MeanLoss,
    ModelMeasurements,
    TrainedRows,
)
from truetune.generation.parser_selftest_results import ParserSelftest
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

if TYPE_CHECKING:
    from truetune.evaluation.run_lm_eval_and_compare_prompts import LmEvalResult


@dataclass(frozen=True)
class ModelResult:
    """One model on the rows."""

    measured: ModelMeasurements
    table: RowLosses | None
    """Of fresh rows"""
    seen: MeanLoss | None
    """Of rows that were trained on, where there are others"""
    samples: tuple[Sample, ...]
    notes: tuple[str, ...]
    prompts: RowSums | None = None
    """What the prompts of fresh rows cost"""


@dataclass(frozen=True)
class ModelMeasurer:
    """How models are measured, which is the same for both of a comparison."""

    probes: Probes
    rows: EvaluationRows
    asking: SamplingSettings
    confidence: float

    def measure(self, model_source: ModelSource) -> ModelResult:
        """Score all rows with a model, and ask it the prompts."""
        tokenizer, rows = self.probes.tokenizer, self.rows
        stops = serving_stops(tokenizer)
        with open_backend(model_source, tokenizer, self.asking.options) as backend:
            ids = [document.ids.tolist() for document in (*rows.fresh, *rows.known)]
            scored = backend.score(
                ids, stops, self.asking.progress_callback_for_task(f"scoring {model_source.name}")
            )
            samples: tuple[Sample, ...] = ()
            if rows.prompts:
                samples = sample_and_score_answers(
                    backend, self.probes, rows.prompts, self.asking
                ).samples
            notes = list(backend.notes)
        if scored is None:
            notes.append(
                f"{model_source.name}: {backend.kind} can't tell the probabilities of given tokens, so"
                " there are no losses and no stop calibration"
            )
            return ModelResult(
                ModelMeasurements(model_source.name), None, None, samples, tuple(notes)
            )
        return self._average_losses_and_calibrate_stops(model_source.name, scored, samples, notes)

    def _average_losses_and_calibrate_stops(
        self,
        name: str,
        scored: Sequence[ScoredIds],
        samples: tuple[Sample, ...],
        notes: list[str],
    ) -> ModelResult:
        """Losses and stop calibration of what was scored: fresh rows first, then those that were trained on."""
        rows, stops = self.rows, serving_stops(self.probes.tokenizer)
        interval: dict[str, Any] = {"seed": self.asking.seed, "confidence": self.confidence}
        count = len(rows.fresh)
        table = sum_row_losses(rows.fresh, scored[:count])
        token = self.probes.tokenizer.backend.id_to_token
        calibration = measure_stop_calibration(
            rows.fresh, scored[:count], stops, lambda id: token(id) or str(id), **interval
        )
        if calibration is None:
            why = "serving stops at no token"
            if stops:
                known = scored[0].stop is not None
                why = "the data train no stop token" if known else "P(stop) is not known"
            notes.append(f"{name}: no stop calibration: {why}")
        not_finite = int((~np.isfinite(table.sums)).any(1).sum())
        if not_finite:
            notes.append(f"{name}: the loss of {not_finite:,} rows is no finite number")
        old = None
        if rows.known:
            # Of all tokens, which is the first.
            old = mean_losses(sum_row_losses(rows.known, scored[count:]), **interval)[0]
        return ModelResult(
            measured=ModelMeasurements(name, mean_losses(table, **interval), calibration),
            table=table,
            seen=old,
            samples=samples,
            notes=tuple(notes),
            prompts=sum_prompt_losses(rows.fresh, scored[:count]),
        )

    def measurer_for_other_model(
        self, model_source: ModelSource, other: ModelSource
    ) -> ModelMeasurer:
        """The same for another kind of model, which the backend that is named may not open."""
        if DEFAULT_BACKENDS[model_source.kind] == DEFAULT_BACKENDS[other.kind]:
            return self
        options = replace(self.asking.options, backend=None)
        return replace(self, asking=replace(self.asking, options=options))


def evaluate_model(
    name: str,
    data: Sequence[str] = (),
    *,
    against: str | None = None,
    parser: str | None = None,
    answers: int = 0,
    limit: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    max_new_tokens: int = 256,
    trained_on: Sequence[str] = (),
    tasks: Sequence[str] = (),
    include: str | None = None,
    fewshot: int | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> EvaluationReport:
    """Measure a model on rows of `data`, else on those that its run held out.

    Args:
        name: the model, as `find_model_source` takes it.
        data: files with rows.
        against: another model that is measured on the same rows; `base` for that of an adapter.
        parser: reads answers and references.
        answers: how many prompts are asked.
        limit: rows at most; of tasks as well.
        seed: of the choice of rows and of the intervals.
        confidence: of the intervals.
        max_new_tokens: after which an answer is cut.
        trained_on: files that the model was trained on, where its run does not tell.
        tasks: of lm-eval; they alone are run where no `data` are named.
        include: a folder of more tasks.
        fewshot: examples before each question of a task.
        base: of an adapter.
        tokenizer: where the model has none of its own.
        options: of the backend.
        progress: is told what is done, and how much of how much.
        settings: those of RunSpec.

    Raises:
        UsageError, SpecError, DataError, TokenizerError, TemplateError: what is named can't be used.
    """
    started = time.perf_counter()
    # Before rows are measured, which may take an hour.
    if tasks and importlib.util.find_spec("lm_eval") is None:
        raise UsageError("tasks are run by lm-eval, which is not installed: pip install lm-eval")
    model_source = find_model_source(name, base=base, tokenizer=tokenizer)
    asking = SamplingSettings(
        max_new_tokens,
        seed=seed,
        parse=make_parser(parser) if parser else None,
        options=options or Options(),
        progress=progress,
    )
    # Of tasks alone there are no settings, and no rule judges them.
    spec = RunSpec()
    evaluated: EvaluationResults | None = None
    metrics: AnswerMetrics | None = None
    notes: tuple[str, ...] = ()
    if data or not tasks:
        files = find_held_out_files(model_source.run, data)
        probes = load_tokenizer_and_template_of_run(
            model_source,
            recorded_format_and_column_names(model_source.run, files) | settings | {"data": files},
        )
        spec = probes.spec
        rows = encode_rows_and_choose_prompts(
            model_source,
            probes,
            files,
            answers,
            all_rows=bool(data),
            trained_on=trained_on,
            limit=limit,
            seed=seed,
        )
        other = (
            None if against is None else find_other_model(against, model_source, base, probes, rows)
        )
        measurer = ModelMeasurer(probes, rows, asking, confidence)
        evaluated, metrics, notes = _measure_models(model_source, other, measurer, parser)
    task_results = None
    if tasks:
        task_results = _run_lm_eval_tasks(
            model_source, tasks, asking.options, include=include, fewshot=fewshot, limit=limit
        )
    judgement = judge_results(evaluated, spec)
    return EvaluationReport(
        spec=spec,
        subjects=(_describe_subject(model_source, evaluated, spec),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        evaluated=evaluated,
        confidence=confidence,
        metrics=metrics,
        tasks=task_results,
        notes=tuple(dict.fromkeys(notes)),
    )


def _run_lm_eval_tasks(
    model_source: ModelSource, names: Sequence[str], options: Options, **settings: Any
) -> LmEvalResult:
    """What lm-eval measured; it is imported only where it is asked for."""
    from truetune.evaluation.run_lm_eval_and_compare_prompts import run_tasks

    return run_tasks(model_source, names, options, **settings)


def judge_results(evaluated: EvaluationResults | None, spec: RunSpec) -> Judgement:
    """What the rules that `spec` selects say of what was measured; without it, of tasks alone, they have no part."""
    if evaluated is None:
        return Judgement()
    rules = choose_rules(spec, EvaluationRule)
    return Judgement.of(
        [run_rules(evaluated, rules), Judgement(not_judged=_note_many_skipped_rows(evaluated))]
    )


def _note_many_skipped_rows(evaluated: EvaluationResults) -> tuple[NotJudged, ...]:
    """Rows that were not measured, where they are more than those that were."""
    count = sum(evaluated.skipped.values())
    # Fewer are a note: the mean is still of most rows.
    if count <= evaluated.rows:
        return ()
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in evaluated.skipped.items())
    return (
        NotJudged(
            "most rows",
            f"{count:,} were not measured, and {evaluated.rows:,} were ({reasons})",
            unlock="name rows that the model takes, or a larger --max-length",
        ),
    )


def _measure_models(
    model_source: ModelSource,
    other: ModelSource | None,
    measurer: ModelMeasurer,
    parser: str | None,
) -> tuple[EvaluationResults, AnswerMetrics | None, tuple[str, ...]]:
    """Measure a model, and another on the same rows.

    Args:
        model_source: the model.
        other: what it is compared with.
        measurer: rows and settings of both.
        parser: the name of that in `measurer`.

    Returns:
        (results, metrics of the answers where there are some, notes)
    """
    selftest, parser_notes, measurer = _try_parser_first(model_source, measurer, parser)
    rows = measurer.rows
    notes = [*rows.notes, *parser_notes]
    result = measurer.measure(model_source)
    notes += result.notes
    other_result = None
    if other is not None:
        other_result = measurer.measurer_for_other_model(model_source, other).measure(other)
        notes += other_result.notes
    if result.table is None and not result.samples:
        raise UsageError(
            f"nothing can be measured: {'; '.join(notes)}; ask for answers (--answers N)"
        )
    selftest = _add_answer_readings_to_selftest(selftest, measurer.asking.parse, result.samples)
    metrics = None
    if result.samples:
        metrics = measure_answers(
            result.samples,
            others=other_result.samples if other_result else (),
            seen_known=rows.trained_on is not None,
        )
    results = EvaluationResults(
        rows=len({document.origin.row for document in rows.fresh}),
        model=result.measured,
        method=_recorded_training_method(model_source),
        skipped=rows.skipped,
        parser=selftest,
        seen=_losses_of_trained_and_other_rows(rows, result),
    )
    # Only a base says whether the training did anything; any other model is just another one.
    if other is not None and other_result is not None:
        results = _add_comparison(results, measurer, result, other_result)
        results = replace(results, is_base=is_base_of(other, model_source))
    return results, metrics, tuple(notes)


def _add_answer_readings_to_selftest(
    selftest: ParserSelftest | None, parse: Parser | None, samples: Sequence[Sample]
) -> ParserSelftest | None:
    """The self-test of the parser, with what the parser makes of a model's answers, where there are
    some.
    """
    if selftest is None or parse is None or not samples:
        return selftest
    references = [sample.prompt.reference for sample in samples]
    texts = [sample.answer.text for sample in samples]
    return add_model_answers(selftest, parse, references, texts)


def _try_parser_first(
    model_source: ModelSource, measurer: ModelMeasurer, parser: str | None
) -> tuple[ParserSelftest | None, list[str], ModelMeasurer]:
    """(what the parser makes of the references, notes, the measurer, without prompts where the parser is wrong).

    Answers cost the most time, and a wrong parser would give each of them a wrong verdict.
    """
    rows, parse = measurer.rows, measurer.asking.parse
    if parse is None or parser is None:
        return None, [], measurer
    golds = [prompt.reference for prompt in rows.golds]
    questions = [prompt.question for prompt in rows.golds]
    selftest = try_parser(parse, golds, name=parser, questions=questions)
    only_parser = EvaluationResults(
        0, method=_recorded_training_method(model_source), skipped=rows.skipped, parser=selftest
    )
    findings = judge_results(only_parser, measurer.probes.spec).findings
    if rows.prompts and any(finding.severity == "error" for finding in findings):
        note = (
            "no prompt was asked: the parser reads known answers wrongly, and would read others so"
        )
        return selftest, [note], replace(measurer, rows=replace(rows, prompts=()))
    if not rows.prompts:
        note = (
            "the parser was tried on the references alone; --answers N has it read a model's"
            " answers"
        )
        return selftest, [note], measurer
    return selftest, [], measurer


def _add_comparison(
    results: EvaluationResults,
    measurer: ModelMeasurer,
    result: ModelResult,
    other_result: ModelResult,
) -> EvaluationResults:
    """The results with the other model's, and how the two differ."""
    # The same seed for every interval: the same run gives the same report.
    interval: dict[str, Any] = {
        "seed": measurer.asking.seed,
        "confidence": measurer.confidence,
    }
    changes: tuple[LossChange, ...] = ()
    if result.table and other_result.table:
        changes = loss_changes(result.table, other_result.table, **interval)
    prompts = None
    if result.prompts is not None and other_result.prompts is not None:
        prompts = prompt_loss_change(result.prompts, other_result.prompts, **interval)
    limit = measurer.asking.max_new_tokens
    return replace(
        results,
        other=other_result.measured,
        changes=changes,
        prompts=prompts,
        agreements=tuple(compare_right_answers(result.samples, other_result.samples, limit)),
    )


def _losses_of_trained_and_other_rows(
    rows: EvaluationRows, result: ModelResult
) -> TrainedRows | None:
    """How many rows were trained on, and what those and the others cost; None where it is not known."""
    if rows.trained_on is None:
        return None
    documents = (*rows.fresh, *rows.known)
    return TrainedRows(
        rows=rows.trained_on,
        of=len({document.origin.row for document in documents}),
        seen=result.seen,
        # Only beside a loss on trained rows does this one say anything.
        unseen=result.measured.mean_loss_of_token_kind() if result.seen else None,
        example=rows.first,
    )


def _recorded_training_method(model_source: ModelSource) -> str | None:
    """By which method the model was trained, as its run says."""
    training = (model_source.run.get("settings") or {}).get("training") or {}
    method = training.get("method")
    return method if isinstance(method, str) else None


def _describe_subject(
    model_source: ModelSource, evaluated: EvaluationResults | None, spec: RunSpec
) -> Subject:
    """The model, and on what it was measured."""
    facts = {"base": str(model_source.base)} if model_source.base else {}
    if evaluated:
        facts["rows"] = f"{evaluated.rows:,} of {', '.join(spec.data)}"
        left_out = sum(evaluated.skipped.values())
        if left_out:
            facts["left out"] = f"{left_out:,}"
        if not evaluated.seen:
            facts["trained on"] = "not known"
    return Subject(model_source.kind, model_source.name, tuple(facts.items()))
