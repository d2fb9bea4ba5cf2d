"""The answers of a model: at any step of a run beside its neighbours, of two runs or models side by side.

Answers of all passes are sent once, with the questions in a table of their own, and a script draws the pass that is
chosen: fifty looks at fifty prompts repeat each prompt fifty times otherwise. The trade-off: without scripts only
the verdicts of the last pass are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from truetune.generation.answer_verdicts import VERDICT_PHRASES
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.visible_text import clip_text, escape_invisible_characters

MAX_CHARACTERS = 4_000
"""Characters of a text that are kept"""
KEPT_FIELDS = (
    "verdict",
    "good",
    "faults",
    "stop_probability",
    "tokens",
    "overlap",
    "exact",
    "agrees",
    "perplexity",
    "reward",
    "advantage",
)
SampleJson = Mapping[str, Any]
LookJson = Mapping[str, Any]


def sample_answers_section(result: Result) -> Section | None:
    """The section of the answers that `truetune sample` collected; None of other results."""
    answers = result.get("sample")
    return (
        _make_answers_section("samples", "Answers", list(_answers_by_model(answers)), answers)
        if answers
        else None
    )


def run_answers_section(result: Result) -> Section | None:
    """The section of the answers that runs gave while they were trained; None where none were
    sampled.
    """
    runs = result.get("runs") or ()
    title = "Answers while it was trained" if result.get("sample") else "Answers"
    left_out = sum(run.get("looks_left_out", 0) for run in runs)
    return _make_answers_section(
        "looks",
        title,
        [(run["name"], run["looks"]) for run in runs if run.get("looks")],
        {},
        left_out,
    )


def rollouts_section(result: Result) -> Section | None:
    """The section of the answers that a training by rewards has sampled and learned from; None of others."""
    runs = result.get("runs") or ()
    return _make_answers_section(
        "rollouts",
        "Sampled answers and their rewards",
        [(run["name"], run["rollouts"]) for run in runs if run.get("rollouts")],
        {},
    )


def _make_answers_section(
    id: str,
    title: str,
    sides: Sequence[tuple[str, Sequence[LookJson]]],
    answers: Mapping[str, Any],
    left_out: int = 0,
) -> Section | None:
    """The section of some models' answers; None where none was sampled."""
    # A run that was never sampled has looks without answers.
    if not any(look["samples"] for _, looks in sides for look in looks):
        return None
    prompts = _PromptIndex()
    data = {
        "sides": [
            {
                "name": escape_invisible_characters(str(name)),
                "looks": [_sampling_pass_values(look, prompts) for look in looks],
            }
            for name, looks in sides
        ],
        "prompts": prompts.shown,
        "said": VERDICT_PHRASES,
    }
    compared = answers.get("compared")
    html = render_template(
        "samples.html.jinja",
        names=[name for name, _ in sides],
        last=[looks[-1] for _, looks in sides],
        asked=answers,
        compared=compared,
        figures=list(_compared_figure_lines(compared or {})),
        unanswered=[
            question | {"place": _row_address(question)}
            for question in answers.get("unanswered") or ()
        ],
        left_out=left_out,
    )
    return Section(id, title, html, data)


def _answers_by_model(answers: Mapping[str, Any]) -> Iterator[tuple[str, list[LookJson]]]:
    """(model, its sampling passes) of what `truetune sample` wrote, and of the other model where it
    was compared.
    """
    samples, compared = answers["samples"], answers.get("compared")
    # One look is no course: a step is named only where there are several.
    step = answers["looks"][-1]["step"] if len(answers.get("looks") or ()) > 1 else None
    yield answers["model"], [{"step": step, "success": answers["success"], "samples": samples}]
    if compared:
        pairs = {
            (pair["file"], pair["line"], pair["row"], pair["mine"]): pair
            for pair in compared["pairs"]
        }
        other = [
            {name: sample[name] for name in ("file", "line", "row", "question", "reference")}
            | {"answer": pair["other"], "words": pair["words"]}
            for sample in samples
            for pair in (
                pairs.get((sample["file"], sample["line"], sample["row"], sample["answer"])),
            )
            if pair
        ]
        yield compared["other"], [{"step": step, "success": None, "samples": other}]


class _PromptIndex:
    """A table of all prompts, each with its number; a prompt is kept once, in the order in which it
    was met.
    """

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self._places: dict[tuple[str, str, int], int] = {}

    def numbers_of(self, samples: Sequence[SampleJson]) -> Iterator[int]:
        """The number of each sample's prompt; samples of one sampling pass may ask the same
        question and have numbers of their own.
        """
        met = Counter[tuple[str, str]]()
        lines = Counter((sample["file"], sample["line"]) for sample in samples)
        for sample in samples:
            prompt = str(sample["question"]), str(sample["reference"])
            # The same question may be asked twice in one pass (several samples a prompt): the
            # second has a place of its own.
            place = (*prompt, met[prompt])
            met[prompt] += 1
            if place not in self._places:
                self._places[place] = len(self.shown)
                self.shown.append(
                    {
                        "place": _row_address(sample, lines[sample["file"], sample["line"]]),
                        "seen": bool(sample.get("seen")),
                        "question": _readable_text(sample["question"]),
                        "reference": _readable_text(sample["reference"]),
                    }
                )
            yield self._places[place]


def _sampling_pass_values(look: LookJson, prompts: _PromptIndex) -> dict[str, Any]:
    """What the page's script draws of one sampling pass: answers by the number of their prompt."""
    samples = look["samples"]
    return {
        "step": look["step"],
        "success": look["success"],
        "answers": {
            place: {
                "text": _readable_text(sample["answer"]),
                "words": [escape_invisible_characters(str(w)) for w in sample.get("words") or ()],
            }
            | {name: sample[name] for name in KEPT_FIELDS if sample.get(name) is not None}
            for place, sample in zip(prompts.numbers_of(samples), samples, strict=True)
        },
    }


def _readable_text(value: Any) -> str:
    """A text for reading: line ends stay, other unseen characters are spelled out, and long texts
    are clipped.
    """
    # Line ends stay, since answers are read as text; everything else that is not seen is
    # spelled out.
    return "\n".join(
        escape_invisible_characters(line)
        for line in clip_text(str(value), MAX_CHARACTERS).split("\n")
    )


def _row_address(sample: SampleJson, sharing: int = 1) -> str:
    """Where a sample's row is: `held.json:4`; its row number where that is known, and no line where
    several rows share one.
    """
    row = sample.get("row")
    place = (
        f" row {row}"
        if row is not None and row >= 0
        else ""
        if sharing > 1
        else f":{sample['line']}"
    )
    return escape_invisible_characters(PurePath(str(sample["file"])).name + place)


def _compared_figure_lines(compared: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(name, cells) of each compared figure: mine, other, the change, its interval, p."""
    for row in compared.get("figures") or ():
        # The same digits as on the terminal would not fit a column: three that count.
        shape = {"share": ".0%", "tokens": ",.0f"}.get(row["shape"], ".3g")
        own, other, low, high, p = (row.get(name) for name in ("mine", "other", "low", "high", "p"))
        known = own is not None and other is not None
        yield (
            row["name"],
            [
                "-" if own is None else format(own, shape),
                "-" if other is None else format(other, shape),
                format(own - other, "+" + shape) if known else "",
                f"{low:+{shape}} to {high:+{shape}}" if None not in (low, high) else "",
                "" if p is None else f"{p:.2g}",
            ],
        )
