"""How far the laws of gradients are from holding, for right and wrong trainers: what their tolerances are drawn from.

python -m bench.gpu.gradient_spread             on the card, or where there is none on the CPU (slow): a table as text
python -m bench.gpu.gradient_spread --small     two sizes of four

The wrong trainer takes the mean of each micro-batch and then the mean of these, as many losses of users do.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from bench.gpu.laws import Configuration, audit_laws
from bench.gpu.size import CARD, Size

LAWS = ("gradient-accumulation", "process-count")
SIZES = ((256, 2), (512, 4), (1024, 8), (512, 16))
"""Width and layers of the random models"""
Kind = Literal["right", "wrong"]


@dataclasses.dataclass(frozen=True)
class Spread:
    """What the two laws say of one run."""

    size: Size
    run: Configuration
    kind: Kind
    values: Mapping[str, float | None]
    """By law; None where it is untested"""

    def describe(self) -> str:
        """One line of the table."""
        shape = f"{self.size.hidden:>5} x {self.size.layers:<3}"
        precision = "bfloat16" if self.run.bf16 else "float32"
        trained = "LoRA" if self.run.lora else "full"
        rows = "packed" if self.run.packed else "padded"
        values = "  ".join(
            f"{law} {'untested' if value is None else format(value, '.2g')}"
            for law, value in self.values.items()
        )
        return f"{shape} {precision:8} {trained:4} {rows:6} {self.kind:5}  {values}"


def configurations() -> Iterator[Configuration]:
    """Full training in both precisions and LoRA in bfloat16, over packed and padded rows."""
    for packed in (False, True):
        yield Configuration(packed=packed)
        yield Configuration(packed=packed, bf16=True)
        yield Configuration(packed=packed, bf16=True, lora=True)


def measure_spread(size: Size, run: Configuration, kind: Kind) -> Spread:
    """The two laws on one run, on the card where this process sees one."""
    with tempfile.TemporaryDirectory() as work:
        outcomes = audit_laws(
            Path(work),
            run,
            size,
            LAWS,
            break_trainer=take_mean_of_means if kind == "wrong" else None,
        )
    return Spread(size, run, kind, {law: outcomes[law].value for law in LAWS})


def take_mean_of_means(trainer: Any) -> None:
    """Give a trainer the loss of each micro-batch's own mean."""
    own = type(trainer)
    trainer.__class__ = type("MeanOfMeans", (own,), {"compute_loss": mean_of_micro_batch})


def mean_of_micro_batch(
    trainer: Any,
    model: Any,
    inputs: Mapping[str, Any],
    return_outputs: bool = False,
    num_items_in_batch: Any = None,
) -> Any:
    """A trainer's `compute_loss`: the mean over this micro-batch, whatever the step's other ones hold."""
    import torch

    without_labels = {name: value for name, value in inputs.items() if name != "labels"}
    outputs = model(**without_labels)
    logits = outputs.logits[:, :-1].float()
    targets = inputs["labels"][:, 1:]
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    )
    return (loss, outputs) if return_outputs else loss


def main() -> None:
    """Print each run as it is measured, and the span of each law at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="two sizes of four")
    options = parser.parse_args()
    sizes = SIZES[:2] if options.small else SIZES
    spreads = []
    for hidden, layers in sizes:
        size = dataclasses.replace(CARD, hidden=hidden, layers=layers)
        for run in configurations():
            for kind in ("right", "wrong"):
                spread = measure_spread(size, run, kind)
                print(spread.describe(), flush=True)
                spreads.append(spread)
    for line in summarize(spreads):
        print(line)


def summarize(spreads: list[Spread]) -> Iterator[str]:
    """The largest value of right trainers and the smallest of wrong ones, by law and precision."""
    for law in LAWS:
        for bf16 in (False, True):
            measured = {
                kind: [
                    value
                    for spread in spreads
                    if spread.kind == kind and spread.run.bf16 == bf16
                    if (value := spread.values[law]) is not None
                ]
                for kind in ("right", "wrong")
            }
            precision = "bfloat16" if bf16 else "float32"
            right = max(measured["right"], default=float("nan"))
            wrong = min(measured["wrong"], default=float("nan"))
            yield f"{law}, {precision}: right {right:.2g} at most, wrong {wrong:.2g} at least"


if __name__ == "__main__":
    main()
