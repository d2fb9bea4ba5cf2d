"""Starting: the settings that `truetune init` proposes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.errors import UsageError
from truetune.memory.estimate import GIB
from truetune.memory.plan import Plan, plan
from truetune.spec.run import RunSpec
from truetune.spec.training import Training
from truetune.training.defaults import LENGTH
from truetune.training.recipe import Recipe, recipe
from truetune.training.survey import Lengths, Survey

RECIPES: Mapping[str, dict[str, Any]] = {
    "sft": {},
    "lora": {"lora": {}},
    "qlora": {"lora": {}, "load_in": 4},
    "dora": {"lora": {"use_dora": True}},
    "dpo": {"method": "dpo", "lora": {}},
    "orpo": {"method": "orpo", "lora": {}},
    "kto": {"method": "kto", "lora": {}},
}
"""Name -> settings of training"""
MEANS = {
    "sft": "all weights, from answers",
    "lora": "an adapter, from answers",
    "qlora": "an adapter on a base of 4 bits, from answers; needs a GPU",
    "dora": "an adapter that keeps size and direction apart, from answers",
    "dpo": "an adapter, from pairs, against a reference",
    "orpo": "an adapter, from pairs, without a reference",
    "kto": "an adapter, from answers judged good or bad",
}
OF_FORMAT = {"preference": "dpo", "kto": "kto"}
"""Format of the rows -> the recipe that is proposed, where it is not lora"""
NEEDS = {
    "dpo": ("preference", "pairs (columns chosen and rejected)"),
    "orpo": ("preference", "pairs (columns chosen and rejected)"),
    "kto": ("kto", "answers with a label (true or false)"),
}
STEP = 256
"""A proposed max_length is a multiple of this, where the model takes as much"""
SHORTEST = 1024
"""Packed rows are at least so long: short rows waste less of one another"""
FULL = 0.97
"""The share of a packed row that examples fill"""


@dataclass(frozen=True, slots=True)
class Start:
    """What is proposed, and from what."""

    name: str
    found: Survey
    asked: RunSpec
    """What the user said, with the proposed max_length"""
    recipe: Recipe
    plan: Plan | None
    """None where the model's config.json could not be read"""
    notes: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found and proposed, for people."""
        return tuple(_lines(self))


def propose(found: Survey) -> str:
    """The recipe that the rows are for."""
    return OF_FORMAT.get(found.format or "", "lora")


def start(
    spec: RunSpec, found: Survey, name: str, *, gpu: bool, gpu_memory: float | None = None
) -> Start:
    """Settings for what was found of `spec`, by a recipe. `gpu_memory`: bytes of one GPU of this machine.

    Raises UsageError where the recipe needs other rows.
    """
    _fits(name, found, spec)
    settings = {**spec.training.model_dump(exclude_unset=True), "method": "sft", **RECIPES[name]}
    training = Training.model_validate(settings)
    length = _length(found, packs=training.method == "sft")
    asked = spec.model_copy(update={"training": training, "max_length": length})
    gpu = gpu or training.load_in is not None
    made = recipe(asked, rows=_rows(found, asked), gpu=gpu, bf16=gpu)
    planned = None
    if found.shape is not None:
        planned = plan(
            made.spec, model=found.shape.architecture, gpu_memory=gpu_memory and gpu_memory / GIB
        )
    return Start(name, found, asked, made, planned, _notes(found, length))


def _fits(name: str, found: Survey, spec: RunSpec) -> None:
    wanted, means = NEEDS.get(name, ("", ""))
    if wanted and found.format != wanted:
        raise UsageError(f"{spec.data[0]}: {name} needs {means}; these rows are {found.format}")
    if not wanted and found.format in OF_FORMAT:
        proper = "dpo or orpo" if found.format == "preference" else "kto"
        raise UsageError(
            f"{spec.data[0]}: {name} learns from answers; these rows are {found.format}: take"
            f" {proper}"
        )


def _length(found: Survey, *, packs: bool) -> int:
    """The longest example, unless few are so long; no more than the model's positions."""
    lengths = found.lengths
    wanted = LENGTH if lengths is None else _covering(lengths)
    if packs:
        wanted = max(wanted, SHORTEST)
    known = found.shape.positions if found.shape else None
    return min(wanted, known or wanted)


def _covering(lengths: Lengths) -> int:
    most = lengths.longest if lengths.longest <= max(LENGTH, 2 * lengths.most) else lengths.most
    return math.ceil(most / STEP) * STEP


def _rows(found: Survey, spec: RunSpec) -> int:
    """Rows that the trainer sees in an epoch, about."""
    if found.lengths is None or spec.training.method != "sft" or spec.max_length is None:
        return found.rows
    return max(1, math.ceil(found.rows * found.lengths.mean / (FULL * spec.max_length)))


def _lines(start: Start) -> Iterator[str]:
    found, made = start.found, start.recipe
    rows = f"{found.rows:,} rows" if found.exact else f"about {found.rows:,} rows"
    lengths = found.lengths
    long = (
        f", 95 of 100 at most {lengths.most:,} tokens, the longest {lengths.longest:,}"
        if lengths
        else ""
    )
    yield f"data: {rows} ({found.format}){long}"
    yield f"recipe: {start.name}, {MEANS[start.name]}"
    steps = "steps" if made.steps is None else f"about {made.steps:,} steps"
    yield f"run: {steps} of {made.effective} x at most {made.max_length:,} tokens"
    if start.plan is None:
        return
    memory = f"about {start.plan.estimate.peak.total / GIB:,.1f} GiB on a GPU"
    verdict = {
        None: "",
        "fits": ": fits",
        "tight": ": tight",
        "too large": ": too large, see `truetune plan`",
    }
    yield f"memory: {memory}{verdict[start.plan.verdict]}"


def _notes(found: Survey, length: int) -> tuple[str, ...]:
    notes = list(found.notes)
    if found.lengths is not None and found.lengths.longest > length:
        notes.append(
            f"examples longer than {length:,} tokens are left out and counted (encode.overflow)"
        )
    return tuple(notes)
