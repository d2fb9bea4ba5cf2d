"""Parses the names of tensors in an adapter file, as peft writes them:
base_model.model.MODULE.lora_A.weight.

peft puts parts of its own between a module's name and its tensors, and drops them again when it loads. The trade-off:
a model whose own modules are called as these parts are (`base_layer`) is not told apart from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor

PEFT_PREFIX = "base_model.model."
BASE_LAYER = "base_layer"
PEFT_NAME_PARTS = ("token_adapter", "trainable_tokens_delta", "modules_to_save", BASE_LAYER)
"""Parts of names that peft puts between a module and its tensors"""
FACTOR_NAMES = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))


class AdapterTensor(NamedTuple):
    """One tensor of an adapter, with the parts of its name."""

    module: str
    """Of the base, without PREFIX: `model.layers.0.self_attn.q_proj`"""
    part: str
    """`lora_A`, `lora_magnitude_vector`, ...; empty for a whole tensor (`modules_to_save`)"""
    rest: str
    """What follows: `weight`"""
    tensor: StoredTensor

    @property
    def whole(self) -> str:
        """The name of the base's tensor that this one replaces."""
        return f"{self.module}.{self.rest}"


def parse_adapter_tensor(tensor: StoredTensor) -> AdapterTensor:
    """Parse the name of one tensor of an adapter."""
    # From the first part of LoRA's own on, all is peft's; before it stands the module.
    names = tensor.name.removeprefix(PEFT_PREFIX).split(".")
    at = next((i for i, name in enumerate(names) if name.startswith("lora_")), None)
    if at is None:
        names = [name for name in names[:-1] if name not in PEFT_NAME_PARTS[2:]] + names[-1:]
        delta = next((i for i, name in enumerate(names) if name in PEFT_NAME_PARTS), None)
        if delta is not None:
            return AdapterTensor(".".join(names[:delta]), names[-1], "", tensor)
        return AdapterTensor(".".join(names[:-1]), "", names[-1], tensor)
    module = [name for name in names[:at] if name != BASE_LAYER]
    return AdapterTensor(".".join(module), names[at], ".".join(names[at + 1 :]), tensor)


def parse_adapter_tensors(tensors: Mapping[str, StoredTensor]) -> list[AdapterTensor]:
    """Parse the names of all tensors of an adapter."""
    return [parse_adapter_tensor(tensor) for tensor in tensors.values()]


def group_low_rank_tensors(
    tensors: Mapping[str, StoredTensor],
) -> dict[str, dict[str, StoredTensor]]:
    """The low-rank tensors by module: module -> part (`lora_A`) -> its weight."""
    tensors_by_module: dict[str, dict[str, StoredTensor]] = {}
    for name in parse_adapter_tensors(tensors):
        # Biases of a factor (lora_bias) add to the output, not to the weight.
        if name.part and not name.rest.endswith("bias"):
            tensors_by_module.setdefault(name.module, {})[name.part] = name.tensor
    return {
        module: parts
        for module, parts in tensors_by_module.items()
        if any(a in parts or b in parts for a, b in FACTOR_NAMES)
    }


def find_replacement_tensors(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors that replace whole tensors of the base, by the base's name."""
    return {
        tensor_name.whole: tensor_name.tensor
        for tensor_name in parse_adapter_tensors(tensors)
        if not tensor_name.part and BASE_LAYER not in tensor_name.tensor.name.split(".")
    }


def list_modules_and_parents(names: Iterable[str]) -> set[str]:
    """Every module that has a tensor, and the modules that hold these."""
    tensors_by_module: set[str] = set()
    for name in names:
        module = name.rpartition(".")[0]
        while module and module not in tensors_by_module:
            tensors_by_module.add(module)
            module = module.rpartition(".")[0]
    return tensors_by_module


def matches_target(module: str, target: str) -> bool:
    """Does an entry of target_modules mean this module? As in peft, it is the name or the end of it."""
    # With the dot, for `proj` must not mean `q_proj`.
    return module == target or module.endswith(f".{target}")
