"""What an adapter lacks: halves of its pairs, and modules that its settings name."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.adapter_tensor_names import (
    FACTOR_NAMES,
    group_low_rank_tensors,
    matches_target,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.checkpoint.architecture import number
from truetune.checks.checkpoint.layers import inside, layer_of
from truetune.checks.findings import Case


def half_pairs(found: Checkpoint) -> Iterator[Case]:
    """Modules of an adapter that have one half of a pair alone."""
    for module, parts in group_low_rank_tensors(found.tensors).items():
        for pair in FACTOR_NAMES:
            there = [name for name in pair if name in parts]
            if len(there) == 1:
                yield Case(f"{module} has {there[0]} alone", file=parts[there[0]].file.name)


def unadapted(found: Checkpoint) -> Iterator[Case]:
    """Modules of the base that target_modules names and that have no tensors, though others of their kind do."""
    config, base = found.adapter_config, found.base
    targets = config.get("target_modules")
    chosen = any(
        config.get(name) for name in ("layers_to_transform", "exclude_modules", "layer_replication")
    )
    if base is None or not isinstance(targets, list) or chosen or config.get("peft_type") != "LORA":
        return
    adapted = {inside(module) for module in group_low_rank_tensors(found.tensors)}
    layers = number(base.config, "num_hidden_layers") or 1 << 20
    alike = {name.rpartition(".")[2] for name in adapted}
    for module in sorted(
        name.removesuffix(".weight") for name in base.tensors if name.endswith(".weight")
    ):
        fits = any(isinstance(t, str) and matches_target(module, t) for t in targets)
        aside = "experts" in module or "mtp" in module or (layer_of(module) or 0) >= layers
        if (
            fits
            and not aside
            and inside(module) not in adapted
            and module.rpartition(".")[2] in alike
        ):
            yield Case(module)
