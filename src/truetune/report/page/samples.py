"""The answers of a model: at any step of a run beside its neighbours, of two runs or models side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from truetune.generation.answer_verdicts import VERDICT_PHRASES
from truetune.report.page.section import Result, Section, drawn
from truetune.report.text import clip, visible

LONGEST = 4_000
"""Characters of a text that are kept"""
KEPT = (
    "verdict",
    "good",
    "faults",
    "stop_probability",
    "tokens",
    "overlap",
    "exact",
    "agrees",
    "perplexity",
)
Sample = Mapping[str, Any]
Look = Mapping[str, Any]


def section(result: Result) -> Section | None:
    """Of `truetune sample`."""
    asked = result.get("sample")
    return _section("samples", "Answers", list(_asked(asked)), asked) if asked else None


def looks(result: Result) -> Section | None:
    """Of runs that were watched."""
    runs = result.get("runs") or ()
    title = "Answers while it was trained" if result.get("sample") else "Answers"
    left_out = sum(run.get("looks_left_out", 0) for run in runs)
    return _section(
        "looks",
        title,
        [(run["name"], run["looks"]) for run in runs if run.get("looks")],
        {},
        left_out,
    )


def _section(
    id: str,
    title: str,
    sides: Sequence[tuple[str, Sequence[Look]]],
    asked: Mapping[str, Any],
    left_out: int = 0,
) -> Section | None:
    if not any(look["samples"] for _, looks in sides for look in looks):
        return None
    prompts = _Prompts()
    data = {
        "sides": [
            {"name": visible(str(name)), "looks": [_look(look, prompts) for look in looks]}
            for name, looks in sides
        ],
        "prompts": prompts.shown,
        "said": VERDICT_PHRASES,
    }
    compared = asked.get("compared")
    html = drawn(
        "samples.html.jinja",
        names=[name for name, _ in sides],
        last=[looks[-1] for _, looks in sides],
        asked=asked,
        compared=compared,
        figures=list(_figures(compared or {})),
        unanswered=[
            question | {"place": _place(question)} for question in asked.get("unanswered") or ()
        ],
        left_out=left_out,
    )
    return Section(id, title, html, data)


def _asked(asked: Mapping[str, Any]) -> Iterator[tuple[str, list[Look]]]:
    """What `truetune sample` wrote, and the other model where it was compared."""
    samples, compared = asked["samples"], asked.get("compared")
    step = asked["looks"][-1]["step"] if len(asked.get("looks") or ()) > 1 else None
    yield asked["model"], [{"step": step, "success": asked["success"], "samples": samples}]
    if compared:
        pairs = {
            (pair["file"], pair["line"], pair["row"], pair["mine"]): pair
            for pair in compared["pairs"]
        }
        other = [
            {name: sample[name] for name in ("file", "line", "row", "question", "reference")}
            | {"answer": pair["other"], "words": pair["words"]}
            for sample in samples
            if (
                pair := pairs.get((sample["file"], sample["line"], sample["row"], sample["answer"]))
            )
        ]
        yield compared["other"], [{"step": step, "success": None, "samples": other}]


class _Prompts:
    """Each question once, in the order in which it was met."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self._places: dict[tuple[str, str, int], int] = {}

    def places(self, samples: Sequence[Sample]) -> Iterator[int]:
        """Of the samples of one look, of which several may ask the same."""
        met = Counter[tuple[str, str]]()
        lines = Counter((sample["file"], sample["line"]) for sample in samples)
        for sample in samples:
            asked = str(sample["question"]), str(sample["reference"])
            place = (*asked, met[asked])
            met[asked] += 1
            if place not in self._places:
                self._places[place] = len(self.shown)
                self.shown.append(
                    {
                        "place": _place(sample, lines[sample["file"], sample["line"]]),
                        "seen": bool(sample.get("seen")),
                        "question": _text(sample["question"]),
                        "reference": _text(sample["reference"]),
                    }
                )
            yield self._places[place]


def _look(look: Look, prompts: _Prompts) -> dict[str, Any]:
    samples = look["samples"]
    return {
        "step": look["step"],
        "success": look["success"],
        "answers": {
            place: {
                "text": _text(sample["answer"]),
                "words": [visible(str(w)) for w in sample.get("words") or ()],
            }
            | {name: sample[name] for name in KEPT if sample.get(name) is not None}
            for place, sample in zip(prompts.places(samples), samples, strict=True)
        },
    }


def _text(value: Any) -> str:
    """As it can be read: lines stay, what is not seen is spelled out."""
    return "\n".join(visible(line) for line in clip(str(value), LONGEST).split("\n"))


def _place(sample: Sample, sharing: int = 1) -> str:
    """`held.json:4`; the row where it is known. Of several rows on one line, as in JSON, the line says nothing."""
    row = sample.get("row")
    place = (
        f" row {row}"
        if row is not None and row >= 0
        else ""
        if sharing > 1
        else f":{sample['line']}"
    )
    return visible(PurePath(str(sample["file"])).name + place)


def _figures(compared: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Name, and mine, other, the change, its interval, p."""
    for row in compared.get("figures") or ():
        shape = {"share": ".0%", "tokens": ",.0f"}.get(row["shape"], ".3g")
        mine, other, low, high, p = (
            row.get(name) for name in ("mine", "other", "low", "high", "p")
        )
        known = mine is not None and other is not None
        yield (
            row["name"],
            [
                "-" if mine is None else format(mine, shape),
                "-" if other is None else format(other, shape),
                format(mine - other, "+" + shape) if known else "",
                f"{low:+{shape}} to {high:+{shape}}" if None not in (low, high) else "",
                "" if p is None else f"{p:.2g}",
            ],
        )
