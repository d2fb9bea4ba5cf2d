"""Blocks that are what a model answered, at some steps of a run.

The blocks are YAML: `looks` with a `step` each, `losses` with a `step` and losses by source, `finished`, `total` and
`limit` as in Watched. In a look a count (`stopped: 7`) is the number of the prompts (`prompts`, 8) that it holds for,
a number (`stop_probability: 0.6`, `overlap`) goes for all, or a list has one for each; what is not said is as in a good
answer. `answers` and `references` are one text for all, a list, or `differ`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.generation.answer_samples import (
    Answer,
    Prompt,
    Sample,
    SampledRun,
    SamplingPass,
    Scores,
    StepLosses,
)
from truetune.generation.labels_said_by_answers import mark_whether_answers_give_reference

GOOD: dict[str, Any] = {
    "stopped": True,
    "empty": False,
    "looped": False,
    "repetition": 0.0,
    "echoed": False,
    "markers": (),
    "language": "en",
    "switched": False,
    "length_ratio": 1.0,
    "exact": False,
    "overlap": 0.5,
    "parsed": None,
}
COUNTED = (
    "stopped",
    "empty",
    "looped",
    "echoed",
    "markers",
    "escapes",
    "switched",
    "exact",
    "parsed",
    "garbage",
    "too_long",
)


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(watched(yaml.safe_load(text))).findings())


def watched(example: dict[str, Any]) -> SampledRun:
    """What a block describes."""
    looks = tuple(look(**described) for described in example.get("looks", ()))
    losses = tuple(
        StepLosses(record["step"], {name: loss for name, loss in record.items() if name != "step"})
        for record in example.get("losses", ())
    )
    rest = {name: example[name] for name in ("finished", "total", "limit") if name in example}
    return SampledRun(looks, losses, **rest)


def look(
    step: int,
    prompts: int = 8,
    answers: Any = "differ",
    references: Any = "differ",
    questions: Any = "differ",
    stop_probability: Any = 0.9,
    **scores: Any,
) -> SamplingPass:
    """One look, its scores given as counts, values or lists."""
    samples = []
    for i in range(prompts):
        said, wanted, question = (
            f"{word} {i}" if texts == "differ" else _of(texts, i)
            for word, texts in (
                ("answer", answers),
                ("reference", references),
                ("question", questions),
            )
        )
        mine = {
            name: _counted(name, given, i) if name in COUNTED else _of(given, i)
            for name, given in scores.items()
        }
        if answers == "differ":
            said = _answer_with_scores(said, question, mine)
        score = Scores(**{**GOOD, "empty": not said, **mine})
        prompt = Prompt((1, i), question, wanted, (5, 6, 2), "held.jsonl", i + 1)
        answer = Answer((5, 6), said, 2 if score.stopped else None, _of(stop_probability, i), 0)
        samples.append(Sample(prompt, answer, score))
    return SamplingPass(step, mark_whether_answers_give_reference(samples), 1.0)


def _answer_with_scores(text: str, question: str, scores: dict[str, Any]) -> str:
    """An answer that shows what its scores say of it, so that the printed cases make sense to readers."""
    shown = {
        "empty": "",
        "garbage": f"\ufffd\ufffd of\ufffd {text}\ufffd\ufffd",
        "looped": f"{text} again and again and again and again and again and again",
        "echoed": f"{question} {text}",
        "markers": f"{text}<|im_start|>user\nWhere is it?",
        "escapes": f"{text}\\nand more\\n",
        "switched": f"Das ist die Antwort auf die Frage, und sie ist nicht in der Sprache der Frage: {text}",
        "too_long": f"{text}, " + "and what is more, there is also this to say about it, " * 8,
    }
    for name, changed in shown.items():
        if scores.get(name):
            return changed
    if scores.get("parsed") is False:
        return f"I think that it may be {text}"
    return text if scores.get("stopped", True) else f"{text}, and then the"


def _of(given: Any, i: int) -> Any:
    return given[i % len(given)] if isinstance(given, list) else given


def _counted(name: str, given: Any, i: int) -> Any:
    held = bool(given[i]) if isinstance(given, list) else i < given
    texts = {"markers": "<|im_start|>", "escapes": "\\n"}
    return ((texts[name],) if held else ()) if name in texts else held
