"""Plans the memory of a run: does it fit, what takes the memory, and what to change where it does
not.

A plan is the estimate of a run on one GPU, a verdict where its size is known, and remedies where it is too small. No
GPU, no weights and no torch are needed. The trade-off: of several GPUs the fullest is planned, and that they are alike
is assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from truetune.errors import UsageError
from truetune.lazy_report_drawers import load_drawer
from truetune.memory import activation_memory, weight_gradient_optimizer_memory
from truetune.memory.estimate_memory import GIB, PARTS, Estimate, Moment, estimate_memory
from truetune.memory.find_changes_to_fit_run_into_memory import Remedy, find_remedies
from truetune.memory.matrices_and_parameters_from_config import (
    Architecture,
    parse_architecture,
    read_architecture,
)
from truetune.memory.memory_settings import resolve_memory_settings
from truetune.memory.published_model_shapes import published_config
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: at a half, notes would stand under most plans; at double, 8 GiB of 48 would go unnamed.
MIN_NAMED_SHARE = 0.1
"""Share of the peak from which on one setting is named: below, it decides nothing"""
Verdict = Literal["fits", "tight", "too large"]
"""tight: only without the margin for fragments"""


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The plan of a run's memory: the estimate, the verdict and the remedies."""

    model: str
    estimate: Estimate
    memory: float | None
    """Bytes of one GPU, where they are known"""
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...]
    """What was assumed, and what is not counted"""

    @property
    def verdict(self) -> Verdict | None:
        """Does the run fit? None where the size of the GPU is not known."""
        return None if self.memory is None else judge_peak(self.estimate.peak, self.memory)

    def __repr__(self) -> str:
        size = f"{self.estimate.peak.total / GIB:.1f} GiB"
        return (
            f"<Plan of {self.model}: {size} at the"
            f" peak{f', {self.verdict}' if self.verdict else ''}>"
        )

    def __str__(self) -> str:
        """What the terminal shows."""
        text: str = load_drawer("plan as text")(self)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The plan for JSON; sizes in bytes."""
        estimate, settings = self.estimate, self.estimate.settings
        return {
            "model": self.model,
            "model_type": estimate.architecture.model_type,
            "parameters": {
                **estimate.architecture.parameter_counts_by_part(),
                "all": estimate.architecture.parameters,
                "trained": estimate.trained_parameter_count,
            },
            "settings": {
                "stack": settings.stack,
                "batch": settings.batch,
                "accumulation": settings.accumulation,
                "devices": settings.world,
                "effective_batch": settings.effective_batch_size,
                "length": settings.length,
            },
            "peak": estimate.peak.name,
            "total": round(estimate.peak.total),
            "moments": [_moment_as_dict(moment) for moment in estimate.moments],
            "gpu_memory": None if self.memory is None else round(self.memory),
            "verdict": self.verdict,
            "remedies": [
                {
                    "what": remedy.what,
                    "settings": list(remedy.lines),
                    "gain": round(remedy.gain),
                    "total": round(remedy.total),
                    "fits": remedy.fits,
                }
                for remedy in self.remedies
            ],
            "notes": list(self.notes),
        }


def plan_memory(
    config: Config | RunSpec,
    *,
    model: str | Path | Architecture | None = None,
    gpu_memory: str | float | None = None,
    gpus: int | None = None,
    length: int | None = None,
    needed_length: int = 0,
) -> Plan:
    """Plan the memory that a run takes on one GPU.

    Args:
        config: of the run.
        model: folder or config.json, where it is not the run's.
        gpu_memory: `24GB`, or a number in GiB.
        gpus: wins over the run's.
        length: tokens of a row; wins over the run's.
        needed_length: tokens that hold each row, where packing or padding fills rows to a longer length.

    Raises:
        UsageError: no model is named, or the memory is no size.
        SpecError: the model can't be read.
    """
    spec = config.spec if isinstance(config, Config) else config
    # The folder of the tokenizer is mostly that of the model.
    named = model or spec.model or spec.tokenizer
    if named is None:
        raise UsageError("no model is named; give a model folder or a config.json")
    if isinstance(named, Architecture):
        name, architecture = "", named
    else:
        name, architecture = str(named), _architecture_of_named_model(str(named))
    settings = resolve_memory_settings(
        config,
        architecture,
        length=length,
        gpus=gpus,
        needed_length=0 if length else needed_length,
    )
    memory = None if gpu_memory is None else parse_gpu_memory(gpu_memory)
    if memory is not None and settings.engine_share:
        settings = replace(settings, engine_bytes=settings.engine_share * memory)
    estimate = estimate_memory(architecture, settings)
    remedies: tuple[Remedy, ...] = ()
    if memory is not None and estimate.peak.total > memory:
        remedies = find_remedies(estimate, memory)
    return Plan(
        model=name,
        estimate=estimate,
        memory=memory,
        remedies=remedies,
        notes=(*settings.notes, *_notes_on_large_shares(estimate)),
    )


def _architecture_of_named_model(named: str) -> Architecture:
    """The architecture of a model folder, or of a published model that is not on this machine. Raises SpecError."""
    config = None if Path(named).exists() else published_config(named)
    if config is None:
        return read_architecture(named)
    note = (
        f"{named} is not on this machine: its sizes are those of the published model of that name"
    )
    architecture = parse_architecture(config, named)
    return replace(architecture, notes=(*architecture.notes, note))


def _notes_on_large_shares(estimate: Estimate) -> Iterator[str]:
    """Settings that take much of the memory, and that users overlook."""
    architecture, settings = estimate.architecture, estimate.settings
    cache = estimate.peak.parts.get("KV cache", 0.0)
    if estimate.peak.name == "generation" and cache > MIN_NAMED_SHARE * estimate.peak.total:
        yield (
            f"{settings.sequences_per_generation:,} answers are sampled at once on a GPU"
            " (per_device_train_batch_size x steps_per_generation), and their keys and values take"
            f" {cache / GIB:.1f} GiB: a smaller steps_per_generation samples fewer at once"
        )
    scores = (
        activation_memory.eager_score_bytes_per_token(architecture, settings)
        * settings.tokens_per_forward_pass
    )
    if scores > MIN_NAMED_SHARE * estimate.peak.total:
        instead = "flash_attention_2 or flex_attention" if architecture.softcap else "sdpa"
        yield (
            f"eager attention holds the scores of all pairs of {settings.length:,} tokens:"
            f" {scores / GIB:.1f} GiB of that, four times as much at twice the length;"
            f" attn_implementation {instead} holds none"
        )
    parameters = weight_gradient_optimizer_memory.count_saved_module_parameters(
        architecture, settings
    )
    size = weight_gradient_optimizer_memory.saved_module_bytes(architecture, settings)
    if settings.lora is not None and size > MIN_NAMED_SHARE * estimate.peak.total:
        in_float32 = (
            ", in float32"
            if weight_gradient_optimizer_memory.bytes_per_saved_weight(settings) == 4
            else ", and twice that where they are float32"
        )
        yield (
            f"{', '.join(settings.lora.modules_to_save)} are trained whole beside the adapter"
            f" (modules_to_save): {parameters / 1e9:.2f} of"
            f" {estimate.trained_parameter_count / 1e9:.2f} billion trained"
            f" parameters, {size / GIB:.1f} GiB with gradients and optimizer states{in_float32}"
            "; leave them out where no token was added: trainable_token_indices trains a few rows instead"
        )


def judge_peak(peak: Moment, memory: float) -> Verdict:
    """Does the peak fit into so many bytes, or barely?"""
    if peak.total <= memory:
        return "fits"
    # Fragments differ from run to run: without them it may fit, and nobody can promise it.
    return "tight" if peak.total - peak.fragmentation_bytes <= memory else "too large"


def parse_gpu_memory(text: str | float) -> float:
    """The bytes of a GPU from a text or number: `24GB`, `24GiB`, `81559MiB`, or a number of GiB. A
    card of `24 GB` holds 24 GiB.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([gm])(?:i?b)?)?\s*", str(text), re.I)
    size = math.nan
    if match:
        is_mebibytes = (match[2] or "g") in "mM"
        size = float(match[1]) / 1024 if is_mebibytes else float(match[1])
    # A comparison with NaN is false: what is no size is refused here as well.
    if not 0 < size < 1 << 20:
        raise UsageError(f"{text}: expected the memory of a GPU, as `24GB`")
    return size * GIB


def _moment_as_dict(moment: Moment) -> dict[str, Any]:
    """A moment for JSON, without parts of no size."""
    sizes = {part: moment.parts.get(part, 0.0) for part in PARTS}
    parts = {part: round(size) for part, size in sizes.items() if size}
    return {
        "name": moment.name,
        "parts": {**parts, "margin": round(moment.fragmentation_bytes)},
        "total": round(moment.total),
    }
