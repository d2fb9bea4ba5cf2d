"""What a replay says: on the terminal, and as the table of docs/starts.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bench.starts.replay import Replay
from bench.starts.start import Author, Start, starts

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "starts.md"


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a replay."""

    verdict: str
    after: int
    """Commands that were typed"""
    named: tuple[str, ...]


def told(replay: Replay, lines: int | None) -> str:
    """A replay as text: the start, each command with its output, and the verdict."""
    start = replay.start
    parts = [f"== {start.name} ({start.symptom})", f"has:   {start.has}", f"cause: {start.cause}"]
    for step in replay.steps:
        output = step.output.splitlines()
        shown = output if lines is None else output[:lines]
        ended = "stopped" if step.exit_code is None else f"exit {step.exit_code}"
        parts += [
            f"$ {step.command}   ({ended}, {step.seconds:.1f} s)",
            *(f"    {line}" for line in shown),
        ]
        if len(shown) < len(output):
            parts.append(f"    ... {len(output) - len(shown)} more lines")
    by = ", ".join(replay.steps[-1].named) if replay.steps else replay.note
    return "\n".join([*parts, f"-> {replay.verdict}{': ' + by if by else ''}", ""])


def write(replays: Iterable[Replay]) -> None:
    """Keep results in the place of earlier ones of the same starts, and draw the tables."""
    results = kept()
    for replay in replays:
        named = replay.steps[-1].named if replay.steps else ()
        results[replay.start.name] = Result(replay.verdict, len(replay.steps), named)
    known = {start.name for start in starts()}
    stated = {
        name: {"verdict": result.verdict, "after": result.after, "named": list(result.named)}
        for name, result in sorted(results.items())
        if name in known
    }
    RESULTS.write_text(json.dumps(stated, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draw()


def kept() -> dict[str, Result]:
    """The results that are kept, by the name of their start."""
    stated = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return {
        name: Result(one["verdict"], one["after"], tuple(one["named"]))
        for name, one in stated.items()
    }


def draw() -> None:
    """Write the tables between their markers in docs/starts.md."""
    text = PAGE.read_text(encoding="utf-8")
    for author in get_args(Author):
        marker = author.replace(",", "").replace(" ", "-")
        before, begin, rest = text.partition(f"<!-- {marker} -->\n")
        _, end, after = rest.partition(f"<!-- /{marker} -->")
        text = f"{before}{begin}{table(author)}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def table(author: Author) -> str:
    """How many starts of an author lead to their cause, and all of them."""
    chosen = [start for start in starts() if start.author == author]
    results = kept()
    led = sum(
        start.name in results and results[start.name].verdict == "led to the cause"
        for start in chosen
    )
    head = ("symptom", "what the user has", "what is typed", "the cause", "result")
    lines = [
        head,
        ("---",) * len(head),
        *(_line(start, results.get(start.name)) for start in chosen),
    ]
    drawn = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return f"{led} of {len(chosen)} lead to the cause within two commands.\n\n{drawn}"


def _line(start: Start, result: Result | None) -> Sequence[str]:
    typed = "<br>".join(_code_span(command) for command in start.commands)
    if result is None:
        verdict = "not replayed"
    elif result.named:
        verdict = f"{result.verdict}, command {result.after}: {', '.join(result.named)}"
    else:
        verdict = result.verdict
    return (start.symptom, start.has, typed, start.cause, verdict)


def _code_span(code: str) -> str:
    """Code as Markdown; the fence is longer than any row of backticks in the code."""
    longest = max((len(ticks) for ticks in re.findall("`+", code)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence}{code}{fence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
