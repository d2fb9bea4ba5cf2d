"""Remedies: what to change where a run does not fit, in order, each as lines for the file of the user's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from truetune.memory.architecture import Architecture
from truetune.memory.estimate_memory import Estimate, estimate_memory
from truetune.memory.memory_settings import MemorySettings
from truetune.memory.spell_settings import spell_changes
from truetune.spec.training import Lora, Method

MIN_LENGTH = 512
"""Tokens; no shorter length is proposed."""
MIN_GAIN = 0.01
"""A remedy that gains less than this share of the memory is left out."""
MIN_ROWS: Mapping[Method, int] = {"kto": 2}
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


def find_remedies(
    found: Estimate, memory: float, possible: Callable[[Proposal], bool] = lambda proposal: True
) -> tuple[Remedy, ...]:
    """Steps until the run fits into `memory` bytes, or all there are; the effective batch stays as it is."""
    taken: list[Proposal] = []
    settings, needs = found.settings, _peak_of(found.architecture)
    for propose in ORDER:
        fits = needs(settings) <= memory
        if fits and not any(proposal.costs for proposal in taken):
            break
        proposal = propose(settings, lambda changed: needs(changed) <= memory)
        if proposal is None or (fits and proposal.costs) or not possible(proposal):
            continue
        if needs(settings) - needs(_apply_changes(settings, [proposal])) > MIN_GAIN * needs(
            settings
        ):
            taken.append(proposal)
            settings = _apply_changes(settings, [proposal])
    return tuple(_list_remedies(found, _drop_unneeded(found, taken, memory), memory))


def _peak_of(architecture: Architecture) -> Callable[[MemorySettings], float]:
    return lambda settings: estimate_memory(architecture, settings).peak.total


def _apply_changes(settings: MemorySettings, proposals: Sequence[Proposal]) -> MemorySettings:
    return replace(
        settings, **{name: value for p in proposals for name, value in p.changes.items()}
    )


def _drop_unneeded(found: Estimate, taken: list[Proposal], memory: float) -> list[Proposal]:
    """Without what is not needed in the end: first what costs something, the last of it first."""
    last_first = taken[::-1]
    for proposal in [*(p for p in last_first if p.costs), *(p for p in last_first if not p.costs)]:
        rest = [p for p in taken if p is not proposal]
        stands = all(p.needs not in proposal.changes for p in rest)
        if stands and _peak_of(found.architecture)(_apply_changes(found.settings, rest)) <= memory:
            taken = rest
    return taken


def _list_remedies(found: Estimate, taken: list[Proposal], memory: float) -> Iterator[Remedy]:
    settings, before = found.settings, found.peak.total
    for proposal in taken:
        lines = spell_changes(
            settings.stack, {n: v for n, v in proposal.changes.items() if getattr(settings, n) != v}
        )
        settings = _apply_changes(settings, [proposal])
        after = _peak_of(found.architecture)(settings)
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


Fits = Callable[[MemorySettings], bool]
Propose = Callable[[MemorySettings, Fits], Proposal | None]


def _smaller_batch(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Rows of a forward pass become steps of accumulation."""
    least = MIN_ROWS.get(settings.method, 1)
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
        (proposal for proposal in made if fits(_apply_changes(settings, [proposal]))),
        made[-1] if made else None,
    )


def _single_eval_row(settings: MemorySettings, fits: Fits) -> Proposal | None:
    return (
        Proposal("one row at a time in evaluations", {"eval_batch": 1})
        if settings.evaluates
        else None
    )


def _use_checkpointing(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.checkpointing:
        return None
    return Proposal("gradient checkpointing (about a third slower)", {"checkpointing": True})


def _use_bfloat16(settings: MemorySettings, fits: Fits) -> Proposal | None:
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


def _use_sdpa(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.attention != "eager":
        return None
    return Proposal("attention that never holds all scores", {"attention": "sdpa"})


def _use_chunked_loss(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.head != "full":
        return None
    return Proposal("a loss that never holds all logits", {"head": "liger", "liger": True})


def _use_8bit_optimizer(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.deepspeed or settings.sharding == "fsdp" or "8bit" in settings.optimizer:
        return None
    return Proposal("optimizer states in 8 bits", {"optimizer": "adamw_8bit"}, True)


def _shorter_rows(settings: MemorySettings, fits: Fits) -> Proposal | None:
    shorter = [settings.length >> n for n in (1, 2, 3) if settings.length >> n >= MIN_LENGTH]
    made = [
        Proposal(
            f"{tokens:,} tokens instead of {settings.length:,}: what is longer is lost",
            {"length": tokens},
            True,
        )
        for tokens in shorter
    ]
    return next(
        (proposal for proposal in made if fits(_apply_changes(settings, [proposal]))),
        made[0] if made else None,
    )


def _use_lora(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.lora is not None:
        return None
    lora = Lora(r=16, lora_alpha=32, target_modules="all-linear")
    changes = {"lora": lora, "base": 2, "compute": 2, "autocast": True, "reference": False}
    return Proposal(
        "LoRA instead of all weights (with its own learning rate, about 10 times higher)",
        changes,
        True,
    )


def _use_qlora(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.lora is None or settings.load_in is not None:
        return None
    return Proposal(
        "QLoRA: the frozen weights in 4 bits", {"load_in": 4, "nested": True}, True, "lora"
    )


def _use_sharding(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.world < 2 or settings.sharding in ("zero3", "fsdp"):
        return None
    what = f"weights, gradients and optimizer shared out to {settings.world} GPUs"
    if settings.deepspeed:
        return Proposal(f"{what} (ZeRO stage 3)", {"sharding": "zero3"})
    return Proposal(f"{what} (FSDP)", {"sharding": "fsdp"})


def _use_offload(settings: MemorySettings, fits: Fits) -> Proposal | None:
    if settings.sharding not in ("zero3", "fsdp") or settings.offload:
        return None
    changes = {"offload": frozenset({"weights", "optimizer"})}
    return Proposal(
        "weights and optimizer in the memory of the CPU (slow)", changes, True, "sharding"
    )


ORDER: tuple[Propose, ...] = (
    _smaller_batch,
    _single_eval_row,
    _use_checkpointing,
    _use_bfloat16,
    _use_sdpa,
    _use_chunked_loss,
    _use_8bit_optimizer,
    _shorter_rows,
    _use_lora,
    _use_qlora,
    _use_sharding,
    _use_offload,
)
"""From what changes nothing but time to what changes the run; the effective batch stays in all of them."""
