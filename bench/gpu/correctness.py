"""Section `correctness`: what truetune encodes, packs and collates gives the same losses on the card as alone.

Each check compares two ways to compute the same on one model, as the laws of an audit do. The loss is compared token by
token, not only as a mean: over random weights a document that sees its neighbour changes single losses by nats, and the
mean by little. Each comparison of packs has a control, the same pack without its borders, that has to differ: a check
that passes there too would prove nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.entries import Budget, Entry, Value, measure_guarded
from bench.gpu.laws import CONFIGURATIONS, LawOutcome, measure_laws
from bench.gpu.liger import is_liger_installed, liger_kernels
from bench.gpu.material import (
    NARROW_SPREAD,
    WIDE_SPREAD,
    Material,
    make_material,
    make_small_model,
    small_config,
)
from bench.gpu.size import Family, Size

SECTION = "correctness"
DTYPES = ("float32", "bfloat16")
IGNORED = -100
# Nats. In float32 kernels that sum in another order differ by 1e-5 here. In bfloat16 one rounding of every product
# moves single losses of these models by up to a quarter and their mean by a thousandth (measured on a CPU, where the
# largest are near 40); a document that sees another moves single losses by 4 to 20 nats in both.
MAX_TOKEN_DIFFERENCE = {"float32": 1e-3, "bfloat16": 1.0}
"""Of the loss of one token"""
MAX_MEAN_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.05}
"""Of the loss of all tokens"""
MAX_GRADIENT_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.1}
"""Of a tensor's gradient, as a share of its norm: the embedding's backward pass adds in no fixed order on a card, and a
kernel rounds elsewhere. A gradient that is wrong, and not only rounded, is off by more than its half."""
LAWS_TIMEOUT_S = 120
"""Of the process that measures the laws on the CPU"""


@dataclass(frozen=True)
class Losses:
    """The losses of the same tokens, computed in one way."""

    tokens: Any
    """(k,) float32 on the CPU, in nats, by the lines of the data"""

    def differences(self, other: Losses) -> tuple[float, float]:
        """(of the mean, largest of a token), in nats."""
        mean = abs(float(self.tokens.mean() - other.tokens.mean()))
        return mean, float((self.tokens - other.tokens).abs().max())


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """Packs against rows alone for each family, dtype and attention; checkpointing; kernels; laws."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as work:
        material = make_material(Path(work), chats=size.chats, max_length=size.max_length)
        for name, expected_s, check in _checks(size, material, device, budget):
            yield measure_guarded(SECTION, name, budget, expected_s, check)


def _checks(
    size: Size, material: Material, device: str, budget: Budget
) -> Iterator[tuple[str, float, Callable[[], Entry]]]:
    """(name, seconds that it takes on a card, what measures it), in the order of what would be missed most."""
    on = (size, material, device)
    for family, dtype, attention in _combinations(size.families, device):
        name = f"packed = alone: {family} {dtype} {attention}"
        yield name, 3, partial(_packed_against_alone, *on, family, dtype, attention, name)
    for dtype in DTYPES:
        name = f"checkpointing on = off: llama {dtype}"
        yield name, 3, partial(_checkpointing, *on, dtype, name)
    for kernel in ("fused head", "liger"):
        for dtype in DTYPES:
            name = f"{kernel} = without: llama {dtype}"
            yield name, 5, partial(_kernel_against_none, *on, kernel, dtype, name)
    for configuration in size.law_configurations:
        yield f"laws: {configuration}", 15, partial(_laws, size, configuration, device, budget)


def _combinations(families: Sequence[Family], device: str) -> Iterator[tuple[Family, str, str]]:
    """(family, dtype, attention) that this machine can run."""
    from transformers.utils.import_utils import is_flash_attn_2_available, is_flash_attn_3_available

    for family in families:
        for dtype in DTYPES:
            yield family, dtype, "sdpa"
            yield family, dtype, "eager"
    if device == "cuda":
        # Flash attention computes 16-bit numbers alone.
        for version, installed in ((2, is_flash_attn_2_available), (3, is_flash_attn_3_available)):
            if installed():
                for family in families:
                    yield family, "bfloat16", f"flash_attention_{version}"


def _model(
    size: Size,
    material: Material,
    device: str,
    dtype: str,
    attention: str,
    family: Family = "llama",
    spread: float = WIDE_SPREAD,
) -> Any:
    """A small model, the same in each check."""
    import torch

    ids = len(material.tokenizer)
    config = small_config(family, ids, hidden=size.hidden, layers=size.layers, spread=spread)
    return make_small_model(config, device, getattr(torch, dtype), attention)


def _packed_against_alone(
    size: Size,
    material: Material,
    device: str,
    family: Family,
    dtype: str,
    attention: str,
    name: str,
) -> Entry:
    """The losses of packed rows, in the collator that truetune chooses, against each example by itself."""
    from truetune.collate import PaddingFreeCollator
    from truetune.training.choose_collator import choose_collator_by_attention
    from truetune.training.does_attention_keep_documents_apart import probe_packing_attention

    model = _model(size, material, device, dtype, attention, family).eval()
    tried = probe_packing_attention(model)
    chosen = choose_collator_by_attention(tried, material.tokenizer, model)
    alone = losses_by_line(model, material.alone, chosen, rows_per_batch=1)
    packed = losses_by_line(model, material.packed, chosen, rows_per_batch=2)
    laid_flat = losses_by_line(
        model, material.packed, PaddingFreeCollator(varlen=tried.varlen), rows_per_batch=1
    )
    merged = [_without_borders(row) for row in material.packed]
    control = losses_by_line(
        model, merged, PaddingFreeCollator(varlen=tried.varlen), rows_per_batch=1, like=material
    )
    mean, token = packed.differences(alone)
    flat_mean, flat_token = laid_flat.differences(alone)
    _, leak = control.differences(alone)
    holds = max(mean, flat_mean) <= MAX_MEAN_DIFFERENCE[dtype]
    holds = holds and max(token, flat_token) <= MAX_TOKEN_DIFFERENCE[dtype]
    has_power = leak > 2 * MAX_TOKEN_DIFFERENCE[dtype]
    figures: dict[str, Value] = {
        "loss alone": round(float(alone.tokens.mean()), 5),
        "loss packed": round(float(packed.tokens.mean()), 5),
        "difference of the mean": mean,
        "largest of a token": token,
        "the same, one line": flat_token,
        "control without borders": leak,
        "tokens": len(alone.tokens),
        "keeps documents apart": tried.packs,
    }
    note = "" if has_power else "the control does not differ: this check proves nothing"
    return Entry(
        SECTION, name, "passed" if holds and has_power and tried.packs else "failed", figures, note
    )


def losses_by_line(
    model: Any,
    rows: Sequence[Mapping[str, Any]],
    collate: Any,
    *,
    rows_per_batch: int,
    like: Material | None = None,
) -> Losses:
    """The loss of each supervised token, in the order of the examples in the data.

    Args:
        model: on its device.
        rows: encoded, packed or not.
        collate: a collator of truetune.
        rows_per_batch: rows that go through the model together.
        like: where the rows have lost their borders, the material that still has them.
    """
    import torch

    from truetune.training.supervised_token_losses import compute_token_losses

    bordered = rows if like is None else like.packed
    parts: dict[tuple[int, int], Any] = {}
    for start in range(0, len(rows), rows_per_batch):
        batch = _to_device(collate(list(rows[start : start + rows_per_batch])), model.device)
        with torch.no_grad():
            losses = compute_token_losses(model, batch).losses.float().cpu()
        counts = [
            (key, count)
            for row in bordered[start : start + rows_per_batch]
            for key, count in _supervised_by_example(row)
        ]
        if like is not None:
            # Without borders the first token of a later example can be learned too; it is none of those compared.
            losses = losses[: sum(count for _, count in counts)]
        for (key, _), part in zip(
            counts, torch.split(losses, [count for _, count in counts]), strict=True
        ):
            parts[key] = part
    return Losses(torch.cat([parts[key] for key in sorted(parts)]))


def _supervised_by_example(row: Mapping[str, Any]) -> Iterator[tuple[tuple[int, int], int]]:
    """((line, number of the example in the line), supervised tokens) of each example in a row."""
    lines = row["line"] if isinstance(row["line"], list) else [row["line"]]
    lengths = row.get("seq_lengths") or [len(row["input_ids"])]
    labels = np.asarray(row["labels"])
    ends = np.cumsum(lengths)
    for line, length, end in zip(lines, lengths, ends, strict=True):
        # The first token of a document has nothing before it that could predict it.
        count = int((labels[end - length + 1 : end] != IGNORED).sum())
        # ChatML rewrites no earlier turn, so each line of the data is one example.
        yield (int(line), 0), count


def _without_borders(row: Mapping[str, Any]) -> dict[str, Any]:
    """A packed row as one document: every example sees those before it."""
    labels = np.asarray(row["labels"]).copy()
    # The labels stay those of the documents, so that the same tokens are compared.
    labels[np.cumsum(row["seq_lengths"]) - np.asarray(row["seq_lengths"])] = IGNORED
    return {"input_ids": row["input_ids"], "labels": labels}


def _to_device(batch: Mapping[str, Any], device: Any) -> dict[str, Any]:
    return {
        name: value.to(device) if hasattr(value, "to") else value for name, value in batch.items()
    }


def _checkpointing(size: Size, material: Material, device: str, dtype: str, name: str) -> Entry:
    """The gradients of one packed row with and without recomputed activations."""
    model = _model(size, material, device, dtype, "sdpa").train()
    without = _gradients(model, material)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    difference = _gradient_difference(_gradients(model, material), without)
    holds = difference <= MAX_GRADIENT_DIFFERENCE[dtype]
    figures: dict[str, Value] = {"largest difference of a gradient": difference}
    return Entry(SECTION, name, "passed" if holds else "failed", figures)


def _gradient_difference(gradients: Mapping[str, Any], others: Mapping[str, Any]) -> float:
    """The largest difference of a tensor's gradient, as a share of its norm."""
    return max(
        float((gradients[key] - others[key]).norm() / others[key].norm().clamp(min=1e-12))
        for key in others
    )


def _gradients(model: Any, material: Material) -> dict[str, Any]:
    """Each tensor's gradient of the mean loss of one packed row, in float32."""
    from truetune.collate import PaddingFreeCollator
    from truetune.training.supervised_token_losses import compute_token_losses

    model.zero_grad()
    batch = _to_device(PaddingFreeCollator()(material.packed[:1]), model.device)
    compute_token_losses(model, batch).losses.mean().backward()
    return {key: tensor.grad.float().clone() for key, tensor in model.named_parameters()}


def _kernel_against_none(
    size: Size, material: Material, device: str, kernel: str, dtype: str, name: str
) -> Entry:
    """The losses of packed rows with a kernel that `truetune train` uses on a GPU, and without."""
    from truetune.collate import PaddingFreeCollator
    from truetune.training.supervised_token_losses import use_fused_head_where_it_computes

    if kernel == "liger" and (device == "cpu" or not is_liger_installed()):
        return Entry(SECTION, name, "not run", note="needs a card and liger-kernel")
    model = _model(size, material, device, dtype, "sdpa", spread=NARROW_SPREAD)
    plain = losses_by_line(model, material.packed, PaddingFreeCollator(), rows_per_batch=1)
    plain_gradients = _gradients(model, material)
    if kernel == "fused head" and not use_fused_head_where_it_computes(model):
        return Entry(
            SECTION, name, "failed", note="TRL's fused head does not give this model's own losses"
        )
    with liger_kernels(model) if kernel == "liger" else nullcontext():
        other = losses_by_line(model, material.packed, PaddingFreeCollator(), rows_per_batch=1)
        gradient = _gradient_difference(_gradients(model, material), plain_gradients)
    mean, token = other.differences(plain)
    holds = mean <= MAX_MEAN_DIFFERENCE[dtype] and token <= MAX_TOKEN_DIFFERENCE[dtype]
    holds = holds and gradient <= MAX_GRADIENT_DIFFERENCE[dtype]
    figures: dict[str, Value] = {
        "loss without": round(float(plain.tokens.mean()), 5),
        "loss with": round(float(other.tokens.mean()), 5),
        "difference of the mean": mean,
        "largest of a token": token,
        "largest difference of a gradient": gradient,
    }
    return Entry(SECTION, name, "passed" if holds else "failed", figures)


def _laws(size: Size, configuration: str, device: str, budget: Budget) -> Entry:
    """The laws on the card, and the same in a process without one: do the verdicts agree?"""
    if device == "cpu":
        here = measure_laws(configuration, size)
        return _laws_entry(configuration, here, here)
    command = [sys.executable, "-m", "bench.gpu.laws", configuration, size.name]
    # The CPU's process works while the card is measured here.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "8"},
    ) as process:
        try:
            here = measure_laws(configuration, size)
            output, _ = process.communicate(timeout=max(5.0, min(LAWS_TIMEOUT_S, budget.left)))
        finally:
            process.kill()
    there = {
        law: LawOutcome(**outcome) for law, outcome in json.loads(output.splitlines()[-1]).items()
    }
    return _laws_entry(configuration, here, there)


def _laws_entry(
    configuration: str, card: Mapping[str, LawOutcome], cpu: Mapping[str, LawOutcome]
) -> Entry:
    """One entry for all laws: how many hold, and on which the two devices differ."""
    differing = [law for law in card if card[law].verdict != cpu[law].verdict]
    broken = [law for law in card if card[law].verdict == "broken"]
    figures: dict[str, Value] = {
        "laws": len(card),
        "hold": sum(outcome.verdict == "holds" for outcome in card.values()),
        "broken": ", ".join(broken),
        "untested": sum(outcome.verdict == "untested" for outcome in card.values()),
        "differ from the CPU": ", ".join(differing),
        "largest share of a tolerance": max(
            (outcome.share for outcome in card.values() if outcome.share is not None), default=None
        ),
    }
    text = "\n".join(
        f"{law}: {card[law].describe()}; on the CPU {cpu[law].describe()}" for law in card
    )
    holds = not differing and tuple(broken) == CONFIGURATIONS[configuration].broken
    return Entry(
        SECTION, f"laws: {configuration}", "passed" if holds else "failed", figures, text=text
    )
