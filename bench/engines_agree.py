"""What two engines' answers to the same prompts have in common, and whether where they part is a near tie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NEAR = 0.2
"""Nats; between two tokens no further apart than this, the rounding of an engine may choose"""
HEAD = [
    (
        "| engine | answers equal | common prefix | largest margin where they part |"
        " log-probabilities: mean, largest difference | P(stop): largest difference | tokens/s |"
        " verdict |"
    ),
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
]


@dataclass(frozen=True)
class Parting:
    """Where an answer leaves the reference's."""

    number: int
    """Of the prompt"""
    prefix: tuple[int, ...]
    """Prompt and common tokens"""
    ours: int | None
    """None: the reference was cut here"""
    theirs: int | None


def whole(answer: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Ids with the stop token."""
    if answer is None:
        return ()
    return (*answer["ids"], *([] if answer["stop"] is None else [answer["stop"]]))


def common(left: Sequence[int], right: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


def parted(
    prompts: Sequence[Any], reference: Mapping[str, Any], reply: Mapping[str, Any]
) -> Iterator[Parting]:
    """Each answer that is another; a prompt without one is left out."""
    for number, (prompt, ours, theirs) in enumerate(
        zip(prompts, reference["answers"], reply["answers"], strict=True)
    ):
        left, right = whole(ours), whole(theirs)
        if theirs is not None and left != right:
            at = common(left, right)
            yield Parting(
                number,
                (*prompt.ids, *left[:at]),
                *(ids[at] if at < len(ids) else None for ids in (left, right)),
            )


def margin(place: Parting, best: Mapping[int, float]) -> float:
    """What the reference holds of its own choice over the other's there, in nats; infinite where it is not among the
    likeliest, or one of them was cut."""
    if place.ours is None or place.theirs is None:
        return math.inf
    return abs(best.get(place.ours, math.inf) - best.get(place.theirs, -math.inf))


def agreement(
    name: str,
    prompts: Sequence[Any],
    reference: Mapping[str, Any],
    reply: Mapping[str, Any],
    known: Mapping[tuple[int, ...], Mapping[int, float]],
) -> dict[str, Any]:
    """A row of the table: "equal", "parts at near ties" or "DIFFERENT". `known`: prefix -> the reference's likeliest
    tokens there."""
    if "failed" in reply:
        return {"name": name, "verdict": "failed", "notes": [reply["failed"]], "failed": True}
    places = list(parted(prompts, reference, reply))
    margins = [margin(place, known[place.prefix]) for place in places]
    shared = [
        common(whole(a), whole(b))
        for a, b in zip(reference["answers"], reply["answers"], strict=True)
    ]
    apart = differences(reference["scores"], reply["scores"])
    stops = [
        abs(a - b)
        for a, b in zip(reference["stop"], reply["stop"], strict=True)
        if None not in (a, b)
    ]
    silent = sum(answer is None for answer in reply["answers"])
    mean = sum(apart) / len(apart) if apart else None
    worst = max(margins, default=0.0)
    verdict = "equal" if not places else f"parts at near ties (margin < {NEAR} nats)"
    if silent:
        verdict = f"{silent} not answered; else {verdict}"
    if worst >= NEAR or (mean or 0.0) >= NEAR:
        verdict = "DIFFERENT"
    tokens = sum(len(whole(answer)) for answer in reply["answers"])
    return {
        "name": name,
        "prompts": len(prompts),
        "equal": len(prompts) - len(places) - silent,
        "shared": sum(shared),
        "tokens": sum(len(whole(answer)) for answer in reference["answers"]),
        "margins": margins,
        "mean": mean,
        "largest": max(apart, default=None),
        "stop": max(stops, default=None),
        "speed": tokens / reply["seconds"],
        "verdict": verdict,
        "notes": [*reply["notes"], *unheeded(reply["fields"])],
        "failed": False,
    }


def differences(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]] | None
) -> list[float]:
    """Of the log-probability of each token of the reference answers."""
    return [
        abs(a - b)
        for left, right in zip(ours, theirs or (), strict=False)
        for a, b in zip(left, right, strict=True)
        if not math.isnan(a + b)
    ]


def unheeded(fields: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    return [
        f"/v1/{route}: {verdict} {', '.join(names)}"
        for route, found in fields.items()
        for verdict, names in found.items()
        if verdict != "kept"
    ]


def line(row: Mapping[str, Any]) -> str:
    """One line of the table, in Markdown."""
    if row["failed"]:
        return f"| {row['name']} | - | - | - | - | - | - | {row['verdict']} |"
    margins = f"{max(row['margins']):.2f}" if row["margins"] else "-"
    scores = "not reported" if row["mean"] is None else f"{row['mean']:.1g}, {row['largest']:.1g}"
    stop = "not reported" if row["stop"] is None else f"{row['stop']:.1g}"
    return (
        f"| {row['name']} | {row['equal']} of {row['prompts']} | {row['shared']} of {row['tokens']}"
        f" tokens | {margins} | {scores} | {stop} | {row['speed']:.0f} | {row['verdict']} |"
    )
