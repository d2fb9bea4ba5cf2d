"""Finds the GPU memory that a run logs beside its losses, in GiB, and tells whether it grows with
each step.

Programs name it in many ways: `memory(GiB)`, `gpu_mem_mb`, Lightning's
`DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.current`. The unit is that of the name, else it follows from
the size of the number.

The trade-off: what PyTorch reserves, and a peak over the whole run, rise with the longest row so far, so they are taken
only where nothing better is logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truetune.logs.run_log import EMPTY_CURVE, Curve

GIB = 1 << 30
OURS = "memory"
"""Our name of it, in GiB"""
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
MEMORY_WORDS = frozenset(("mem", "memory", "vram"))
ALLOCATED_WORDS = frozenset(("allocated", "alloc"))
OTHER_WORDS = frozenset(
    ("cpu", "ram", "rss", "host", "system", "swap", "disk", "percent", "pct", "ratio", "share")
    + ("utilization", "util", "utilisation", "free", "total", "limit", "capacity", "budget")
    + ("retries", "ooms", "count", "freed", "inactive", "token", "tokens", "cache", "bandwidth")
)
"""Words of names that are about something else: the host, a share, a number of events"""
RISING_WORDS = frozenset(("peak", "max", "reserved"))
"""Words of figures that rise with the longest row so far"""
UNITS = {
    "gib": 1.0,
    "gb": 1e9 / GIB,
    "mib": 1 / 1024,
    "mb": 1e6 / GIB,
    "bytes": 1 / GIB,
    "byte": 1 / GIB,
}
FROM_BYTES, FROM_MIB = 1e7, 2_000.0
"""Numbers from which, without a unit, memory is in bytes, or in MiB: no GPU has 2,000 GiB, and no model needs 2 MiB"""
MIN_GROWTH_GIB, MIN_GROWTH_RECORDS = 1.0, 6
"""Memory that grows with the steps: by this much, in records enough to see a line"""
RELEASED_SHARE = 0.5
"""Share of the range by which memory falls at once where it is released"""
MIN_CORRELATION = 0.97
"""Correlation of memory with the step from which it grows with each step: a peak that follows the longest row rises in
a few jumps, with less"""


class MemoryCurve(NamedTuple):
    """What a run logs of its GPU's memory."""

    name: str
    curve: Curve
    """In GiB"""
    is_current: bool
    """Is it what tensors hold at the time, and no peak, and nothing that PyTorch reserves?"""


NO_MEMORY = MemoryCurve("", EMPTY_CURVE, False)


def find_memory_curve(curves: Mapping[str, Curve]) -> MemoryCurve:
    """The curve of the GPU's memory, that of the tensors themselves first; an empty one where none is logged."""
    memory_curves: list[MemoryCurve] = []
    for name, curve in curves.items():
        words = {word.lower() for word in PARTS.findall(name)}
        # `cuda_allocated_gb`, `allocated_bytes.all.current`: what is allocated in units of memory
        is_size = bool(words & (ALLOCATED_WORDS | RISING_WORDS)) and bool(words & UNITS.keys())
        if name != OURS and not (words & MEMORY_WORDS or is_size):
            continue
        finite = curve.finite()
        if words & OTHER_WORDS or not finite:
            continue
        scale = 1.0 if name == OURS else _gib_per_unit(words, float(np.max(finite.value)))
        is_current = not words & RISING_WORDS
        memory_curves.append(
            MemoryCurve(name, Curve(finite.step, finite.value * scale), is_current)
        )
    # Of several GPUs and of several figures, the first that holds what is in use.
    memory_curves.sort(key=lambda one: (not one.is_current, one.name != OURS))
    return memory_curves[0] if memory_curves else NO_MEMORY


def _gib_per_unit(words: set[str], largest: float) -> float:
    """The GiB of one unit of a logged figure, by the words of its name or by its size."""
    for word, scale in UNITS.items():
        if word in words:
            return scale
    if largest >= FROM_BYTES:
        return 1 / GIB
    return 1 / 1024 if largest >= FROM_MIB else 1.0


def growth_between_releases(memory: Curve) -> list[tuple[float, float]]:
    """Memory at the beginning and the end of each stretch in which it grows with each step, from release to release.

    What keeps the tensors of each step may be emptied with each epoch: a list of losses, a metric.

    Returns:
        Two stretches at least, in GiB; empty where not nearly all of the curve is such stretches.
    """
    curve = memory.finite()
    if curve.step.size < 2 * MIN_GROWTH_RECORDS:
        return []
    drops = np.flatnonzero(np.diff(curve.value) < -RELEASED_SHARE * float(np.ptp(curve.value))) + 1
    stretches = [
        Curve(curve.step[start:end], curve.value[start:end])
        for start, end in pairwise((0, *drops.tolist(), curve.step.size))
    ]
    whole = [one for one in stretches if one.step.size >= MIN_GROWTH_RECORDS]
    grown = [ends for one in whole if (ends := first_and_last_if_growing(one)) is not None]
    return grown if len(grown) == len(whole) >= 2 else []


def first_and_last_if_growing(memory: Curve) -> tuple[float, float] | None:
    """Memory of the first and the last record in GiB where it grows with each step; None where it does not."""
    curve = memory.finite()
    if curve.step.size < MIN_GROWTH_RECORDS or np.ptp(curve.step) == 0:
        return None
    first, last = float(curve.value[0]), float(curve.value[-1])
    # A leak grows in the second half too. A peak that was reached early (the longest row) does not.
    half = float(curve.value[curve.value.size // 2])
    if last - first < MIN_GROWTH_GIB or last - half < 0.25 * (last - first):
        return None
    correlation = float(np.corrcoef(curve.step, curve.value)[0, 1])
    return (first, last) if correlation > MIN_CORRELATION else None
