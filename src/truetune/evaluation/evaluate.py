"""evaluate: what held-out rows cost a model, whether it knows where answers end, what its answers are worth, and all
that against another model."""

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
from truetune.evaluation.against import agreements, is_base, other_of
from truetune.evaluation.apart import Rows, prepared, rows_apart
from truetune.evaluation.asked import columns_of, data_of
from truetune.evaluation.evaluated_report import EvaluationReport
from truetune.evaluation.losses import (
    RowLosses,
    RowSums,
    changes,
    losses,
    prompt_change,
    prompt_losses,
    row_losses,
)
from truetune.evaluation.metrics import Metrics, measured
from truetune.evaluation.parser_proof import after_answers, proof_of
from truetune.evaluation.sample import Asking, Progress, ask_model
from truetune.evaluation.stops import calibration
from truetune.generation.answer_parsers import make_parser
from truetune.generation.answer_samples import Sample
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import DEFAULT_BACKENDS, Options, open_backend
from truetune.generation.evaluation_results import (
    EvaluationResults,
    LossChange,
    MeanLoss,
    ModelMeasurements,
    TrainedRows,
)
from truetune.render.probes import Probes
from truetune.spec.run import RunSpec

if TYPE_CHECKING:
    from truetune.evaluation.lm_eval import LmEval


@dataclass(frozen=True)
class Result:
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
class Measuring:
    """How models are measured."""

    probes: Probes
    rows: Rows
    asking: Asking
    confidence: float

    def __call__(self, place: ModelSource) -> Result:
        """Score all rows, and ask the prompts."""
        options = self.asking.options
        with open_backend(place, self.probes.tokenizer, options) as backend:
            documents, stops = (
                (*self.rows.fresh, *self.rows.known),
                serving_stops(self.probes.tokenizer),
            )
            ids = [document.ids.tolist() for document in documents]
            scored = backend.score(ids, stops, self.asking.tell(f"scoring {place.name}"))
            look = (
                ask_model(backend, self.probes, self.rows.prompts, self.asking)
                if self.rows.prompts
                else None
            )
            notes, samples = list(backend.notes), look.samples if look else ()
        if scored is None:
            notes.append(
                f"{place.name}: {backend.kind} can't tell the probabilities of given tokens, so"
                " there are no losses and no stop calibration"
            )
            return Result(ModelMeasurements(place.name), None, None, samples, tuple(notes))
        given: dict[str, Any] = {"seed": self.asking.seed, "confidence": self.confidence}
        count = len(self.rows.fresh)
        table = row_losses(documents[:count], scored[:count])
        token = self.probes.tokenizer.backend.id_to_token
        ends = calibration(
            documents[:count], scored[:count], stops, lambda id: token(id) or str(id), **given
        )
        if ends is None:
            why = (
                "the data train no stop token"
                if stops and scored[0].stop is not None
                else ("P(stop) is not known" if stops else "serving stops at no token")
            )
            notes.append(f"{place.name}: no stop calibration: {why}")
        if bad := int((~np.isfinite(table.sums)).any(1).sum()):
            notes.append(f"{place.name}: the loss of {bad:,} rows is no finite number")
        old = (
            losses(row_losses(documents[count:], scored[count:]), **given)[0]
            if documents[count:]
            else None
        )
        return Result(
            ModelMeasurements(place.name, losses(table, **given), ends),
            table,
            old,
            samples,
            tuple(notes),
            prompt_losses(documents[:count], scored[:count]),
        )

    def otherwise(self, place: ModelSource, other: ModelSource) -> Measuring:
        """The same for another kind of model, which the backend that is named may not open."""
        if DEFAULT_BACKENDS[place.kind] == DEFAULT_BACKENDS[other.kind]:
            return self
        return replace(
            self, asking=replace(self.asking, options=replace(self.asking.options, backend=None))
        )


def evaluate(
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
    """Measure a model on rows of `data` (else on those that its run held out), on `limit` of them at most.

    `name` and `against` (`base`: that of an adapter) are what `find_model_source` takes. So many `answers` are asked
    for, and read by `parser`. `trained_on` are files that the model was trained on, where its run does not tell.
    `tasks` are lm-eval's (`include`: a folder of more), run with `limit` rows each; they alone, where no `data` are
    named. `settings` are those of RunSpec.

    Raises UsageError, SpecError, DataError, TokenizerError or TemplateError.
    """
    started = time.perf_counter()
    if tasks and importlib.util.find_spec("lm_eval") is None:
        raise UsageError("tasks are run by lm-eval, which is not installed: pip install lm-eval")
    place = find_model_source(name, base=base, tokenizer=tokenizer)
    asking = Asking(
        max_new_tokens,
        seed=seed,
        parse=make_parser(parser) if parser else None,
        options=options or Options(),
        progress=progress,
    )
    spec = RunSpec()
    evaluated: EvaluationResults | None = None
    metrics: Metrics | None = None
    notes: tuple[str, ...] = ()
    if data or not tasks:
        files = data_of(place.run, data)
        probes = prepared(place, columns_of(place.run, files) | settings | {"data": files})
        spec = probes.spec
        rows = rows_apart(
            place,
            probes,
            files,
            answers,
            all_rows=bool(data),
            trained_on=trained_on,
            limit=limit,
            seed=seed,
        )
        other = None if against is None else other_of(against, place, base, probes, rows)
        evaluated, metrics, notes = _evaluated(
            place, other, Measuring(probes, rows, asking, confidence), parser
        )
    done = (
        _tasks(place, tasks, asking.options, include=include, fewshot=fewshot, limit=limit)
        if tasks
        else None
    )
    told = judgement_of(evaluated, spec)
    return EvaluationReport(
        spec=spec,
        subjects=(_subject(place, evaluated, spec),),
        findings=told.findings,
        examined=told.examined,
        not_judged=told.not_judged,
        seconds=time.perf_counter() - started,
        name=name,
        evaluated=evaluated,
        confidence=confidence,
        metrics=metrics,
        tasks=done,
        notes=tuple(dict.fromkeys(notes)),
    )


def _tasks(place: ModelSource, names: Sequence[str], options: Options, **given: Any) -> LmEval:
    from truetune.evaluation.lm_eval import run_tasks

    return run_tasks(place, names, options, **given)


def judgement_of(evaluated: EvaluationResults | None, spec: RunSpec) -> Judgement:
    """What the rules that `spec` selects say of what was measured; without it, of tasks alone, they have no part."""
    if evaluated is None:
        return Judgement()
    return Judgement.of(
        [
            run_rules(evaluated, choose_rules(spec, EvaluationRule)),
            Judgement(not_judged=_left_out(evaluated)),
        ]
    )


def _left_out(evaluated: EvaluationResults) -> tuple[NotJudged, ...]:
    """Rows that were not measured, where they are more than those that were."""
    count = sum(evaluated.skipped.values())
    if count <= evaluated.rows:
        return ()
    why = ", ".join(f"{number:,} {reason}" for reason, number in evaluated.skipped.items())
    told = f"{count:,} were not measured, and {evaluated.rows:,} were ({why})"
    return (
        NotJudged(
            "most rows", told, unlock="name rows that the model takes, or a larger --max-length"
        ),
    )


def _evaluated(
    place: ModelSource, other: ModelSource | None, measuring: Measuring, parser: str | None
) -> tuple[EvaluationResults, Metrics | None, tuple[str, ...]]:
    """The parser is tried first; where it is wrong, no model is asked."""
    rows, asking, notes = measuring.rows, measuring.asking, [*measuring.rows.notes]
    made = EvaluationResults(0, method=_method(place), skipped=rows.skipped)
    golds = [prompt.reference for prompt in rows.golds]
    if asking.parse is not None and parser is not None:
        made = replace(
            made,
            parser=proof_of(
                asking.parse,
                golds,
                name=parser,
                questions=[prompt.question for prompt in rows.golds],
            ),
        )
        found = judgement_of(made, measuring.probes.spec).findings
        if rows.prompts and any(finding.severity == "error" for finding in found):
            notes.append(
                "no prompt was asked: the parser reads known answers wrongly, and would read"
                " others so"
            )
            measuring = replace(measuring, rows=replace(rows, prompts=()))
        elif not rows.prompts:
            notes.append(
                "the parser was tried on the references alone; --answers N has it read a model's"
                " answers"
            )
    mine = measuring(place)
    theirs = measuring.otherwise(place, other)(other) if other else None
    notes += [*mine.notes, *(theirs.notes if theirs else ())]
    if mine.table is None and not mine.samples:
        raise UsageError(
            f"nothing can be measured: {'; '.join(notes)}; ask for answers (--answers N)"
        )
    if made.parser and asking.parse and mine.samples:
        references, said = zip(
            *((s.prompt.reference, s.answer.text) for s in mine.samples), strict=True
        )
        made = replace(made, parser=after_answers(made.parser, asking.parse, references, said))
    metrics = None
    if mine.samples:
        metrics = measured(
            mine.samples,
            others=theirs.samples if theirs else (),
            seen_known=rows.trained_on is not None,
        )
    given: dict[str, Any] = {"seed": asking.seed, "confidence": measuring.confidence}
    both = theirs and mine.table and theirs.table and changes(mine.table, theirs.table, **given)
    made = replace(
        made,
        rows=len({document.origin.row for document in rows.fresh}),
        model=mine.measured,
        other=theirs.measured if theirs else None,
        is_base=other is not None and is_base(other, place),
        changes=both or (),
        prompts=_prompt_change(mine, theirs, given),
        agreements=(
            tuple(agreements(mine.samples, theirs.samples, asking.max_new_tokens)) if theirs else ()
        ),
        seen=_trained_rows(rows, mine),
    )
    return made, metrics, tuple(notes)


def _prompt_change(mine: Result, theirs: Result | None, given: dict[str, Any]) -> LossChange | None:
    if theirs is None or mine.prompts is None or theirs.prompts is None:
        return None
    return prompt_change(mine.prompts, theirs.prompts, **given)


def _trained_rows(rows: Rows, mine: Result) -> TrainedRows | None:
    if rows.trained_on is None:
        return None
    whole = len({document.origin.row for document in (*rows.fresh, *rows.known)})
    unseen = mine.measured.loss() if mine.seen else None
    return TrainedRows(rows.trained_on, whole, mine.seen, unseen, rows.first)


def _method(place: ModelSource) -> str | None:
    training = (place.run.get("settings") or {}).get("training") or {}
    method = training.get("method")
    return method if isinstance(method, str) else None


def _subject(place: ModelSource, evaluated: EvaluationResults | None, spec: RunSpec) -> Subject:
    facts = {"base": str(place.base)} if place.base else {}
    if evaluated:
        facts["rows"] = f"{evaluated.rows:,} of {', '.join(spec.data)}"
        left = sum(evaluated.skipped.values())
        facts |= {"left out": f"{left:,}"} if left else {}
        facts |= {} if evaluated.seen else {"trained on": "not known"}
    return Subject(place.kind, place.name, tuple(facts.items()))
