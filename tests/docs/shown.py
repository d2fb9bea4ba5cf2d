"""Outputs that the pages show, held against what the commands print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.docs.blocks import INDENTED, Block, blocks
from tests.docs.unrun import Reason

ELLIPSIS = "..."
"""Alone on a line it stands for any lines; in a line, for anything"""
VARIES = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"\r", "\n"),
    (r"\b\d[\d.,]*(?= (?:ms|s|[kMG]B/s|rows/s|tokens/s)\b)", "#"),
    (r"\b\d+\.\d+\.\d+(?:\+\w+)?\b", "#.#.#"),
    (r"(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+", "#"),
)
"""What no two runs have in common: colours, bars, times and speeds, versions, ports"""
TRAINS = re.compile(
    r"\btruetune (run|rehearse|train|sample|evaluate|serve-check|ladder)\b|\.train\(\)"
)
ROUNDED = (
    r"(?<![\w.])\d[\d,]*\.\d+(?:e[+-]?\d+)?(?! ?%)(?![\w.])|\b\d+e[+-]?\d+\b|(?<=in )\d+(?= steps)"
)
"""What the arithmetic of a machine decides, where a command trains a model or asks one"""
SHOWING = ("text", INDENTED)
REASONS = (
    Reason(r"held\.json|<\|endoftext\|> \(0\)|merged-f16|right answers, by pairs|58,242|hthouse",
           "SmolLM2-135M, tuned and asked for minutes: printed once, by the command that the page names", 9),
    Reason(r"pad = <\|pad\|>", "the demo's proof trains for a minute: tests/demo", 1),
    Reason(r"NVIDIA L40S", "the environment of another machine", 1),
    Reason(r"^golden rollouts", "a script with GRPO is rehearsed by tests/rehearsal/test_rewards.py", 1),
    Reason(r"LAW011 at 425", "Lightning is not among the tests' packages: run by hand", 1),
    Reason(r"class Answers\(lightning\.Callback\)", "Lightning is not among the tests' packages: run by hand", 1),
    Reason(r"rewards/margins|^asked:|'epoch'|'reward_std'|eval accuracy|OutOfMemoryError|eval_loss 0",
           "a symptom: what a trainer or a model says", 10),
    Reason(r"^(from|import) |^\"\"\"|def read_turns|, in BUILT_IN$|^.project\.entry-points|def training_step|"
           r"^truetune\.guard\(tokenizer, trainer",
           "a program or a part of one, no output", 12),
    Reason(r"settings -> rows|cost = |core-seconds|manifest\.json|s3://", "a layout or a formula, no output", 6),
)  # fmt: skip
"""Why a block without a language that is run shows nothing that could be compared; searched in the block"""


def reason(block: Block) -> Reason | None:
    """Why this is not compared; None where it has to be."""
    return next(
        (found for found in REASONS if re.search(found.pattern, block.text, re.MULTILINE)), None
    )


def output(block: Block) -> Block | None:
    """What stands right behind a block that is run, and is its output."""
    every = blocks()
    after = next(iter(every[every.index(block) + 1 :]), None)
    shows = (
        after is not None
        and after.page == block.page
        and after.language in SHOWING
        and block.language != "console"
    )
    return after if after and shows and not reason(after) else None


def turns(block: Block) -> Iterator[tuple[str, str]]:
    """(command, the output below it) of a `console` block."""
    for turn in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, below = turn.partition("\n")
        yield command.strip(), below


def wrong(shown: str, said: str, command: str, folder: Path) -> str | None:
    """The first of the parts between `...` that does not come, whole and in its order, in what a command said."""
    left = "\n".join(["", *plain(said, command, folder), ""])
    parts = [
        (dots, [*lines])
        for dots, lines in groupby(plain(shown, command, folder), lambda line: line == ELLIPSIS)
    ]
    at = 0
    for number, (dots, lines) in enumerate(parts):
        if not dots:
            words = r"\s".join(map(_word, " ".join(lines).split()))
            first, last = r"\A" if number == 0 else "", r"\Z" if number == len(parts) - 1 else ""
            found = re.compile(rf"{first}\n{words}(?=\n{last})").search(left, at)
            if not found:
                return "\n".join(lines)
            at = found.end()
    return None


def plain(text: str, command: str, folder: Path) -> list[str]:
    """Lines that are not empty, without what varies; white space is one space."""
    text = text.replace(f"{folder}/", "")
    for pattern, instead in (*VARIES, *([(ROUNDED, "#")] if TRAINS.search(command) else ())):
        text = re.sub(pattern, instead, text)
    return [line for line in (" ".join(line.split()) for line in text.split("\n")) if line]


def _word(word: str) -> str:
    return r"[\s\S]{0,300}?".join(map(re.escape, word.split(ELLIPSIS)))
