"""Finds what an adapter lacks: halves of its low-rank pairs, and modules of the base that its
settings name.

Names in the file are compared with each other and with the base's. The trade-off: where settings choose layers
themselves, nothing is said, for a module may be left out on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checkpoint.adapter_tensor_names import (
    FACTOR_NAMES,
    group_low_rank_tensors,
    matches_target,
    parse_adapter_tensors,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import (
    layer_number,
    name_part_from_layer_number_on,
)
from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.checks.findings import Case

SETTINGS_THAT_CHOOSE_LAYERS = ("layers_to_transform", "exclude_modules", "layer_replication")
NO_LAYER_LIMIT = 1 << 20
"""Where config.json does not say how many layers there are"""


def list_modules_with_half_pair(checkpoint: Checkpoint) -> Iterator[Case]:
    """Modules of an adapter that have one half of a pair alone."""
    for module, parts in group_low_rank_tensors(checkpoint.tensors).items():
        for pair in FACTOR_NAMES:
            present = [name for name in pair if name in parts]
            if len(present) == 1:
                yield Case(f"{module} has {present[0]} alone", file=parts[present[0]].file.name)


def list_parts_that_settings_call_for(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """(setting, part of the names) of what adapter_config.json says that each pair has, and none has."""
    config = checkpoint.adapter_config
    pieces = parse_adapter_tensors(checkpoint.tensors)
    pairs = [piece for piece in pieces if piece.part in FACTOR_NAMES[0]]
    if not pairs or config.get("peft_type") != "LORA":
        return
    has_magnitudes = any(piece.part == "lora_magnitude_vector" for piece in pieces)
    if config.get("use_dora") is True and not has_magnitudes:
        yield "use_dora: true", "lora_magnitude_vector"
    if config.get("lora_bias") is True and not any(p.rest.endswith("bias") for p in pairs):
        yield "lora_bias: true", "lora_B.bias"


def list_unadapted_modules(checkpoint: Checkpoint) -> Iterator[Case]:
    """Modules of the base that target_modules names and that have no tensors, though others of their kind do."""
    config, base = checkpoint.adapter_config, checkpoint.base
    targets = config.get("target_modules")
    if base is None or not isinstance(targets, list) or config.get("peft_type") != "LORA":
        return
    if any(config.get(name) for name in SETTINGS_THAT_CHOOSE_LAYERS):
        return
    adapted = {
        name_part_from_layer_number_on(module)
        for module in group_low_rank_tensors(checkpoint.tensors)
    }
    # A kind of which no module is adapted is lora-targets-half-matched.
    adapted_kinds = {name.rpartition(".")[2] for name in adapted}
    for module in _list_target_modules(base, targets):
        is_adapted = name_part_from_layer_number_on(module) in adapted
        if not is_adapted and module.rpartition(".")[2] in adapted_kinds:
            yield Case(module)


def _list_target_modules(base: Checkpoint, targets: Sequence[object]) -> Iterator[str]:
    """The modules in the layers of the base that target_modules names, in order."""
    layers = first_positive_text_model_setting(base.config, "num_hidden_layers") or NO_LAYER_LIMIT
    modules = {name.removesuffix(".weight") for name in base.tensors if name.endswith(".weight")}
    names = [target for target in targets if isinstance(target, str)]
    for module in sorted(modules):
        is_target = any(matches_target(module, name) for name in names)
        if is_target and not _is_expert_or_extra_predictor(module, layers):
            yield module


def _is_expert_or_extra_predictor(module: str, layers: int) -> bool:
    """Is a module an expert, or a part that predicts further tokens?

    peft adapts these by other settings, or not at all.
    """
    is_beyond = (layer_number(module) or 0) >= layers
    return "experts" in module or "mtp" in module or is_beyond
