"""Remedies: what to change where a run does not fit, in order, each as lines for the file of the user's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from truetune.memory.architecture import Architecture
from truetune.memory.estimate_memory import Estimate, estimate
from truetune.memory.memory_settings import Settings
from truetune.memory.spell_settings import spelled
from truetune.spec.training import Lora, Method

SHORTEST = 512
"""Tokens; no shorter length is proposed."""
WORTH = 0.01
"""A remedy that gains less than this share of the memory is left out."""
LEAST: Mapping[Method, int] = {"kto": 2}
"""Rows of a forward pass at least: KTO compares a row with its neighbour."""


class Proposal(NamedTuple):
    """A change to a run."""

    what: str
    changes: Mapping[str, Any]
    """Fields of Settings and their new values"""
    costs: bool = False
    """The run learns something else, or becomes slow; left out again where the others are enough."""
    needs: str | None = None
    """A field that another proposal has to change first"""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One step on the way to a run that fits."""

    what: str
    lines: tuple[str, ...]
    """Settings to paste into the file of the stack"""
    gain: float
    """Bytes less than before it"""
    total: float
    """Bytes on the GPU with it and all before it"""
    fits: bool
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Settings and their new values"""
    costs: bool = False
    """The run learns something else, or becomes slow."""


def remedies(
    found: Estimate, memory: float, possible: Callable[[Proposal], bool] = lambda proposal: True
) -> tuple[Remedy, ...]:
    """Steps until the run fits into `memory` bytes, or all there are; the effective batch stays as it is."""
    taken: list[Proposal] = []
    settings, needs = found.settings, _needs(found.architecture)
    for propose in ORDER:
        fits = needs(settings) <= memory
        if fits and not any(proposal.costs for proposal in taken):
            break
        proposal = propose(settings, lambda changed: needs(changed) <= memory)
        if proposal is None or (fits and proposal.costs) or not possible(proposal):
            continue
        if needs(settings) - needs(_with(settings, [proposal])) > WORTH * needs(settings):
            taken.append(proposal)
            settings = _with(settings, [proposal])
    return tuple(_steps(found, _cheapest(found, taken, memory), memory))


def _needs(architecture: Architecture) -> Callable[[Settings], float]:
    return lambda settings: estimate(architecture, settings).peak.total


def _with(settings: Settings, proposals: Sequence[Proposal]) -> Settings:
    return replace(
        settings, **{name: value for p in proposals for name, value in p.changes.items()}
    )


def _cheapest(found: Estimate, taken: list[Proposal], memory: float) -> list[Proposal]:
    """Without what is not needed in the end: first what costs something, the last of it first."""
    last_first = taken[::-1]
    for proposal in [*(p for p in last_first if p.costs), *(p for p in last_first if not p.costs)]:
        rest = [p for p in taken if p is not proposal]
        stands = all(p.needs not in proposal.changes for p in rest)
        if stands and _needs(found.architecture)(_with(found.settings, rest)) <= memory:
            taken = rest
    return taken


def _steps(found: Estimate, taken: list[Proposal], memory: float) -> Iterator[Remedy]:
    settings, before = found.settings, found.peak.total
    for proposal in taken:
        lines = spelled(
            settings.stack, {n: v for n, v in proposal.changes.items() if getattr(settings, n) != v}
        )
        settings = _with(settings, [proposal])
        after = _needs(found.architecture)(settings)
        yield Remedy(
            proposal.what,
            lines,
            before - after,
            after,
            after <= memory,
            proposal.changes,
            proposal.costs,
        )
        before = after


Fits = Callable[[Settings], bool]
Propose = Callable[[Settings, Fits], Proposal | None]


def _batch(settings: Settings, fits: Fits) -> Proposal | None:
    """Rows of a forward pass become steps of accumulation."""
    least = LEAST.get(settings.method, 1)
    smaller = [
        rows for rows in range(settings.batch - 1, least - 1, -1) if settings.batch % rows == 0
    ]
    made = [
        Proposal(
            f"{rows} {'row' if rows == 1 else 'rows'} at a time instead of {settings.batch}; "
            f"the effective batch stays {settings.effective}",
            {
                "batch": rows,
                "accumulation": settings.accumulation * settings.batch // rows,
                "masked": settings.masked and rows > 1,
            },
        )
        for rows in smaller
    ]
    return next(
        (proposal for proposal in made if fits(_with(settings, [proposal]))),
        made[-1] if made else None,
    )


def _eval_batch(settings: Settings, fits: Fits) -> Proposal | None:
    return (
        Proposal("one row at a time in evaluations", {"eval_batch": 1})
        if settings.evaluates
        else None
    )


def _checkpointing(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.checkpointing:
        return None
    return Proposal("gradient checkpointing (about a third slower)", {"checkpointing": True})


def _mixed(settings: Settings, fits: Fits) -> Proposal | None:
    """Frozen weights need no float32; trained ones keep it, and only what is computed becomes bfloat16."""
    if settings.base == 2:
        return None
    if settings.lora is not None:
        return Proposal("frozen weights in bfloat16", {"base": 2, "autocast": True, "compute": 2})
    return (
        None
        if settings.autocast
        else Proposal("bfloat16 autocast", {"autocast": True, "compute": 2})
    )


def _attention(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.attention != "eager":
        return None
    return Proposal("attention that never holds all scores", {"attention": "sdpa"})


def _head(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.head != "full":
        return None
    return Proposal("a loss that never holds all logits", {"head": "liger", "liger": True})


def _optimizer(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.deepspeed or settings.sharding == "fsdp" or "8bit" in settings.optimizer:
        return None
    return Proposal("optimizer states in 8 bits", {"optimizer": "adamw_8bit"}, True)


def _length(settings: Settings, fits: Fits) -> Proposal | None:
    shorter = [settings.length >> n for n in (1, 2, 3) if settings.length >> n >= SHORTEST]
    made = [
        Proposal(
            f"{tokens:,} tokens instead of {settings.length:,}: what is longer is lost",
            {"length": tokens},
            True,
        )
        for tokens in shorter
    ]
    return next(
        (proposal for proposal in made if fits(_with(settings, [proposal]))),
        made[0] if made else None,
    )


def _lora(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.lora is not None:
        return None
    lora = Lora(r=16, lora_alpha=32, target_modules="all-linear")
    changes = {"lora": lora, "base": 2, "compute": 2, "autocast": True, "reference": False}
    return Proposal(
        "LoRA instead of all weights (with its own learning rate, about 10 times higher)",
        changes,
        True,
    )


def _qlora(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.lora is None or settings.load_in is not None:
        return None
    return Proposal(
        "QLoRA: the frozen weights in 4 bits", {"load_in": 4, "nested": True}, True, "lora"
    )


def _sharding(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.world < 2 or settings.sharding in ("zero3", "fsdp"):
        return None
    what = f"weights, gradients and optimizer shared out to {settings.world} GPUs"
    if settings.deepspeed:
        return Proposal(f"{what} (ZeRO stage 3)", {"sharding": "zero3"})
    return Proposal(f"{what} (FSDP)", {"sharding": "fsdp"})


def _offload(settings: Settings, fits: Fits) -> Proposal | None:
    if settings.sharding not in ("zero3", "fsdp") or settings.offload:
        return None
    changes = {"offload": frozenset({"weights", "optimizer"})}
    return Proposal(
        "weights and optimizer in the memory of the CPU (slow)", changes, True, "sharding"
    )


ORDER: tuple[Propose, ...] = (
    _batch,
    _eval_batch,
    _checkpointing,
    _mixed,
    _attention,
    _head,
    _optimizer,
    _length,
    _lora,
    _qlora,
    _sharding,
    _offload,
)
"""From what changes nothing but time to what changes the run; the effective batch stays in all of them."""
