"""In float16 no activation comes near its largest number, 65504."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    coarsest_dtype,
    fix_mode_without_waiting_for_processes,
    logits_of_first_batch,
)

COST: Cost = "quick"
LARGEST_FLOAT16 = 65504.0
# Half of the range: one batch is looked at, and later ones may be twice as large.
TOLERANCE = 0.5


def measure_law(trial: Trial) -> Measured:
    """Measure the largest absolute output of any module over one batch, as a share of 65504."""
    if coarsest_dtype(trial) != torch.float16:
        raise Untested("the run does not compute in float16")
    peaks = _peak_outputs(trial)
    if not peaks:
        raise Untested("no module gave a tensor")
    # `not peak < LARGEST` instead of `peak >= LARGEST`: a nan, of what overflowed before, is beyond as well.
    beyond = [name for name, peak in peaks.items() if not peak < LARGEST_FLOAT16]
    first = beyond[0] if beyond else max(peaks, key=lambda name: peaks[name])
    evidence = {
        "module": first,
        "largest": peaks[first],
        "beyond": len(beyond),
        "modules": len(peaks),
    }
    share = peaks[first] / LARGEST_FLOAT16
    return Measured(share, TOLERANCE, "largest activation, of 65504", evidence)


def _peak_outputs(trial: Trial) -> dict[str, float]:
    """The largest absolute output of each module without children, by its name, in the order of their calls."""
    peaks: dict[str, float] = {}

    def watch(name: str) -> Any:
        """A hook that keeps the peak of the module of this name."""

        def hook(module: Any, args: Any, output: Any) -> None:
            output = output[0] if isinstance(output, tuple) else output
            if isinstance(output, torch.Tensor) and output.is_floating_point() and output.numel():
                peak = float(output.abs().max())
                # A nan replaces a number, and is replaced by none: no comparison with it is true.
                peaks[name] = peak if not peak <= peaks.get(name, 0.0) else peaks[name]

        return hook

    with fix_mode_without_waiting_for_processes(trial):
        handles = [
            module.register_forward_hook(watch(name))
            for name, module in trial.model.named_modules()
            if not any(module.children())
        ]
        try:
            logits_of_first_batch(trial)
        finally:
            for handle in handles:
                handle.remove()
    return peaks
