"""Finds what to change where a run does not fit, in order, each as lines for the file of the user's
stack.

Proposals are tried one after the other, from what costs only time to what changes the run, until it fits; then those
that turn out to be unneeded are dropped again. The trade-off: a greedy search, which finds a good way and not the best
of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from truetune.memory.estimate_memory import Estimate, estimate_memory
from truetune.memory.matrices_and_parameters_from_config import Architecture
from truetune.memory.memory_settings import MemorySettings
from truetune.memory.write_remedies_as_stack_settings import setting_lines_of_changes
from truetune.settings.training_settings import Lora, Method

# Chosen, not measured: at 256 most chats lose their answers; at 1,024 small GPUs would have one remedy less.
MIN_LENGTH = 512
"""Tokens; no shorter length is proposed."""
# Chosen, not measured: less than the error of the estimate itself is no help.
MIN_GAIN = 0.01
"""A remedy that gains less than this share of the memory is left out."""
MIN_ROWS: Mapping[Method, int] = {"kto": 2}
"""Rows of a forward pass at least: KTO compares a row with its neighbour."""


class Proposal(NamedTuple):
    """A change to a run that may be tried."""

    what: str
    changes: Mapping[str, Any]
    """Fields of Settings and their new values"""
    costs: bool = False
    """The run learns something else, or becomes slow; left out again where the others are enough."""
    needs: str | None = None
    """A field that another proposal has to change first"""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change on the way to a run that fits, with what it saves."""

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
    estimate: Estimate,
    memory: float,
    possible: Callable[[Proposal], bool] = lambda proposal: True,
) -> tuple[Remedy, ...]:
    """The changes, in order, until the run fits, or all there are; the effective batch stays as it
    is.

    Args:
        estimate: of the run as it is.
        memory: bytes of the GPU.
        possible: can this run be changed so?
    """
    taken: list[Proposal] = []
    settings, peak_of = estimate.settings, _make_peak_function(estimate.architecture)
    for propose in ORDER:
        fits = peak_of(settings) <= memory
        # Something costly was taken: a later proposal that costs nothing may replace it.
        if fits and not any(proposal.costs for proposal in taken):
            break
        proposal = propose(settings, lambda changed: peak_of(changed) <= memory)
        if proposal is None or (fits and proposal.costs) or not possible(proposal):
            continue
        changed = _apply_changes(settings, [proposal])
        if peak_of(settings) - peak_of(changed) > MIN_GAIN * peak_of(settings):
            taken.append(proposal)
            settings = changed
    return tuple(_list_remedies(estimate, _drop_unneeded(estimate, taken, memory), memory))


def _make_peak_function(architecture: Architecture) -> Callable[[MemorySettings], float]:
    """A function that gives the peak of a run with these settings, in bytes."""
    return lambda settings: estimate_memory(architecture, settings).peak.total


def _apply_changes(settings: MemorySettings, proposals: Sequence[Proposal]) -> MemorySettings:
    """The settings with these changes, of which later ones win."""
    for proposal in proposals:
        settings = replace(settings, **proposal.changes)
    return settings


def _drop_unneeded(estimate: Estimate, taken: list[Proposal], memory: float) -> list[Proposal]:
    """The proposals without those that are not needed in the end: first those that cost something,
    the last of them first.
    """
    peak_of = _make_peak_function(estimate.architecture)
    last_first = taken[::-1]
    costly = [proposal for proposal in last_first if proposal.costs]
    free = [proposal for proposal in last_first if not proposal.costs]
    for proposal in [*costly, *free]:
        rest = [other for other in taken if other is not proposal]
        # QLoRA without LoRA is none.
        is_free_to_go = all(other.needs not in proposal.changes for other in rest)
        if is_free_to_go and peak_of(_apply_changes(estimate.settings, rest)) <= memory:
            taken = rest
    return taken


def _list_remedies(estimate: Estimate, taken: list[Proposal], memory: float) -> Iterator[Remedy]:
    """The proposals as remedies, each with what it saves after those before it."""
    settings, before = estimate.settings, estimate.peak.total
    for proposal in taken:
        # A setting that has the value already needs no line.
        changes = {
            name: value
            for name, value in proposal.changes.items()
            if getattr(settings, name) != value
        }
        lines = setting_lines_of_changes(settings.stack, changes, is_program=settings.is_program)
        if "lora" in changes and settings.unused_adapter:
            lines = (settings.unused_adapter,)
        settings = _apply_changes(settings, [proposal])
        after = _make_peak_function(estimate.architecture)(settings)
        yield Remedy(
            what=proposal.what,
            lines=lines,
            gain=before - after,
            total=after,
            fits=after <= memory,
            changes=proposal.changes,
            costs=proposal.costs,
        )
        before = after


Fits = Callable[[MemorySettings], bool]
Propose = Callable[[MemorySettings, Fits], Proposal | None]


def _smaller_batch(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: rows of a forward pass become steps of accumulation; the largest batch that fits,
    else the smallest.
    """
    least = MIN_ROWS.get(settings.method, 1)
    proposals = [
        Proposal(
            f"{rows} {'row' if rows == 1 else 'rows'} at a time instead of {settings.batch}; "
            f"the effective batch stays {settings.effective_batch_size}",
            {
                "batch": rows,
                "accumulation": settings.accumulation * settings.batch // rows,
                "masked": settings.masked and rows > 1,
            },
        )
        for rows in range(settings.batch - 1, least - 1, -1)
        # Only a divisor leaves the effective batch as it is.
        if settings.batch % rows == 0
    ]
    return _first_that_fits(settings, proposals, fits) or (proposals[-1] if proposals else None)


def _first_that_fits(
    settings: MemorySettings, proposals: Sequence[Proposal], fits: Fits
) -> Proposal | None:
    """The first proposal with which the run fits."""
    for proposal in proposals:
        if fits(_apply_changes(settings, [proposal])):
            return proposal
    return None


def _single_eval_row(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: evaluate one row at a time, which takes longer and changes nothing that is learned."""
    if not settings.evaluates:
        return None
    return Proposal("one row at a time in evaluations", {"eval_batch": 1})


def _use_checkpointing(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: gradient checkpointing, so that activations are computed once more in the backward
    pass.
    """
    if settings.checkpointing:
        return None
    return Proposal("gradient checkpointing (about a third slower)", {"checkpointing": True})


def _use_bfloat16(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: bfloat16. Frozen weights need no float32; trained ones keep it, and only what is
    computed becomes bfloat16.
    """
    if settings.base == 2:
        return None
    if settings.lora is not None:
        return Proposal("frozen weights in bfloat16", {"base": 2, "autocast": True, "compute": 2})
    if settings.autocast:
        return None
    return Proposal("bfloat16 autocast", {"autocast": True, "compute": 2})


def _use_sdpa(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: SDPA, which computes the scores of all pairs of tokens in pieces."""
    if settings.attention != "eager":
        return None
    return Proposal("attention that never holds all scores", {"attention": "sdpa"})


def _use_chunked_loss(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: a loss that turns logits into losses chunk by chunk."""
    if settings.head != "full":
        return None
    return Proposal("a loss that never holds all logits", {"head": "liger", "liger": True})


def _use_8bit_optimizer(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: an 8-bit optimizer, with a quarter of the states; DeepSpeed and FSDP have
    optimizers of their own.
    """
    if settings.deepspeed or settings.sharding == "fsdp" or "8bit" in settings.optimizer:
        return None
    return Proposal("optimizer states in 8 bits", {"optimizer": "adamw_8bit"}, True)


def _shorter_rows(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: shorter rows; of a half, a quarter or an eighth of the length the longest that
    fits, else a half.
    """
    halvings = (settings.length >> n for n in (1, 2, 3))
    proposals = [
        Proposal(
            f"{tokens:,} tokens instead of {settings.length:,}: what is longer is lost",
            {"length": tokens},
            True,
        )
        for tokens in halvings
        if tokens >= MIN_LENGTH
    ]
    # Where none is enough, other remedies are needed beside it, and least should be lost.
    return _first_that_fits(settings, proposals, fits) or (proposals[0] if proposals else None)


def _use_lora(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: LoRA, with gradients and states of an adapter alone."""
    if settings.lora is not None:
        return None
    # Chosen, not measured, as most recipes begin: rank 16 on every linear layer, alpha twice the rank.
    lora = Lora(r=16, lora_alpha=32, target_modules="all-linear")
    changes = {"lora": lora, "base": 2, "compute": 2, "autocast": True, "reference": False}
    what = "LoRA instead of all weights"
    if settings.unused_adapter:
        what += ": pass the script's own LoraConfig on, which is never used"
    if not settings.has_rate_of_adapter:
        what += " (with its own learning rate, about 10 times higher)"
    return Proposal(what, changes, True)


def _use_qlora(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: QLoRA, with a quarter of the frozen weights; trained ones can't be quantized."""
    if settings.lora is None or settings.load_in is not None:
        return None
    return Proposal(
        "QLoRA: the frozen weights in 4 bits", {"load_in": 4, "nested": True}, True, "lora"
    )


def _use_sharding(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: sharding, so that each GPU holds a part; by DeepSpeed where the run has it already."""
    if settings.world < 2 or settings.sharding in ("zero3", "fsdp"):
        return None
    what = f"weights, gradients and optimizer shared out to {settings.world} GPUs"
    if settings.deepspeed:
        return Proposal(f"{what} (ZeRO stage 3)", {"sharding": "zero3"})
    # The lines below it say by what: LLaMA-Factory's and ms-swift's are those of DeepSpeed.
    return Proposal(f"{what} (FSDP or ZeRO stage 3)", {"sharding": "fsdp"})


def _use_offload(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal, the last resort: offload to the CPU, where every step sends all weights over PCIe."""
    if settings.sharding not in ("zero3", "fsdp") or settings.offload:
        return None
    changes = {"offload": frozenset({"weights", "optimizer"})}
    return Proposal(
        "weights and optimizer in the memory of the CPU (slow)", changes, True, "sharding"
    )


def _use_length_of_longest_row(settings: MemorySettings, fits: Fits) -> Proposal | None:
    """Proposal: the length that the rows themselves need, where packing or padding fills them to a
    longer one.
    """
    if not settings.needed_length or 2 * settings.needed_length > settings.length:
        return None
    return Proposal(
        f"{settings.needed_length:,} tokens instead of {settings.length:,}, to which rows are filled (more steps of"
        " accumulation keep the tokens of a step)",
        {"length": settings.needed_length},
    )


ORDER: tuple[Propose, ...] = (
    _use_length_of_longest_row,
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
