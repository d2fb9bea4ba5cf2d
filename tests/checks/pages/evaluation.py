"""Blocks that are what was measured on held-out rows.

The blocks are YAML with the fields of Evaluated: `losses` by source (a mean, or mean, low, high), `stops` (fields of
Stops, `expected` with its bounds), `other: base` or another name, `changes` by source and `prompts`
(difference, low, high, p),
`agreements`, `seen` (`seen` and `unseen` as mean, low, high), `method`, `skipped`; the name of a `parser`, with the
`golds` that it is tried on and a model's `answers` to them; `judged` verdicts of a judge (`judged` below), `twins`
(fields of EqualAnswers). What is not said is as with a good model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.data.llm_judge_verdicts_and_bias import JudgedPair, parse_winning_place
from truetune.evaluation.confidence_intervals_over_rows import mcnemar_p
from truetune.evaluation.try_parser import add_model_answers, try_parser
from truetune.generation.answer_parsers_named_by_user import make_parser
from truetune.generation.evaluation_loss_and_score_types import (
    Agreement,
    EqualAnswers,
    EvaluationResults,
    LossChange,
    MeanLoss,
    ModelMeasurements,
    StopCalibration,
    TrainedRows,
)
from truetune.generation.parser_selftest_results import ParserSelftest


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(evaluated(yaml.safe_load(text))).findings())


def evaluated(example: dict[str, Any]) -> EvaluationResults:
    """What a block describes."""
    given, rows = dict(example), example.get("rows", 20)
    losses = tuple(loss(source, rows, mean) for source, mean in given.pop("losses", {}).items())
    model = ModelMeasurements("tuned", losses, stops(rows, **given.pop("stops", {})))
    other = given.pop("other", None)
    made: dict[str, Any] = {
        "rows": rows,
        "model": model,
        "other": other and ModelMeasurements(other),
        "is_base": other == "base",
        "changes": tuple(
            LossChange(source, rows, *found) for source, found in given.pop("changes", {}).items()
        ),
        "prompts": LossChange("prompts", rows, *given.pop("prompts"))
        if "prompts" in given
        else None,
        "agreements": tuple(
            Agreement(**found, p=mcnemar_p(found["only_this"], found["only_other"]))
            for found in given.pop("agreements", ())
        ),
        "seen": seen(rows, **given.pop("seen")) if "seen" in given else None,
        "parser": (
            proof(given.pop("parser"), given.pop("golds"), given.pop("answers", None))
            if "golds" in given
            else None
        ),
    }
    made["judged"] = tuple(judged(given.pop("judged", {})))
    made["twins"] = tuple(
        EqualAnswers(**{**one, "names": tuple(one["names"])}) for one in given.pop("twins", ())
    )
    return EvaluationResults(**{**given, **made})


def judged(described: dict[str, str]) -> Iterator[JudgedPair]:
    """Verdicts: `both orders` has two letters a pair, for its two orders; `longer first` one, of a long answer and a
    short one."""
    for number, verdicts in enumerate(described.get("both orders", "").split()):
        sides = f"one {number}", f"other {number}"
        for verdict, texts in zip(verdicts, (sides, sides[::-1]), strict=True):
            yield JudgedPair(f"question {number}", texts, ("", ""), parse_winning_place(verdict))
    for number, verdict in enumerate(described.get("longer first", "").split()):
        texts = f"a long answer to question {number}", f"short {number}"
        yield JudgedPair(f"question {number}", texts, ("", ""), parse_winning_place(verdict))


def loss(source: str, rows: int, mean: Any) -> MeanLoss:
    """A mean, or (mean, low, high)."""
    mean, low, high = mean if isinstance(mean, list) else (mean, 0.9 * mean, 1.1 * mean)
    return MeanLoss(source, 40 * rows, rows, mean, low, high)


def stops(
    rows: int, expected: Any = (0.98, 0.9, 1.05), mean: float = 0.93, **fields: Any
) -> StopCalibration:
    """Of answers with one end each."""
    ratio, low, high = expected
    good = {
        "ends": rows,
        "rows": rows,
        "median": mean,
        "likely": rows if mean > 0.5 else 0,
        "inside": 40 * rows,
        "inside_mean": 0.001,
        "false": 0,
        "largest": 0.2,
        "error": 0.01,
    }
    return StopCalibration(
        **{**good, "mean": mean, "expected": ratio, "low": low, "high": high, **fields}
    )


def seen(of: int, rows: int, **losses: Any) -> TrainedRows:
    """Rows that were trained on, and the losses of them and of the others."""
    counts = {"seen": rows, "unseen": of - rows}
    made = {name: loss("all", counts[name], mean) for name, mean in losses.items()}
    return TrainedRows(rows, of, **made, example=("held.jsonl", 3) if rows else None)


def proof(name: str, golds: list[str], answers: list[str] | None) -> ParserSelftest:
    """The parser, tried."""
    parse = make_parser(name)
    found = try_parser(parse, golds, name=name, seconds=0.2)
    return found if answers is None else add_model_answers(found, parse, golds, answers)
