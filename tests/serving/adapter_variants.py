"""Adapters of many kinds on one architecture, as names and sizes of tensors and an adapter_config.json.

The same adapters are given to the real loaders (`record_vllm`, `record_llama_cpp`) and to the verdict from headers, so
the two can be compared without an engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "base_model.model."
RANK = 4
OTHER_PARTS = re.compile(r"visual|vision|audio|projector|connector|merger")
"""Names of modules outside of the text part"""
TEXT_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")


@dataclass(frozen=True)
class HfModule:
    """A module of the architecture in transformers: one of each pattern."""

    pattern: str
    kind: str
    name: str
    shape: tuple[int, ...]

    @property
    def is_text_layer(self) -> bool:
        """Is it a linear module in a layer of the text part?"""
        return (
            self.kind == "linear" and ".*." in self.pattern and not OTHER_PARTS.search(self.pattern)
        )


@dataclass(frozen=True)
class AdapterVariant:
    """One adapter to try."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole_config(self) -> dict[str, Any]:
        """adapter_config.json, with what all variants share."""
        shared = {
            "peft_type": "LORA",
            "r": RANK,
            "lora_alpha": 8,
            "bias": "none",
            "base_model_name_or_path": "base",
        }
        leaves = sorted({leaf_of_tensor(name) for name in self.shapes})
        return {**shared, "target_modules": leaves, **self.config}


def leaf_of_tensor(name: str) -> str:
    """The last part of the module that a tensor belongs to."""
    parts = name.split(".")
    at = next(
        (i for i, part in enumerate(parts) if part.startswith(("lora_", "token_adapter"))),
        len(parts) - 1,
    )
    return parts[at - 1]


def pair_shapes(module: HfModule, name: str, rank: int = RANK) -> dict[str, tuple[int, ...]]:
    """The two factors of a module under a name."""
    rows, columns = module.shape[-2:]
    if module.kind == "embedding":
        return {
            f"{PREFIX}{name}.lora_embedding_A": (rank, rows),
            f"{PREFIX}{name}.lora_embedding_B": (columns, rank),
        }
    return {
        f"{PREFIX}{name}.lora_A.weight": (rank, columns),
        f"{PREFIX}{name}.lora_B.weight": (rows, rank),
    }


def adapter_variants(modules: list[HfModule]) -> Iterator[AdapterVariant]:
    """The adapters that are tried on an architecture of these modules."""
    yield from (
        AdapterVariant(f"only {m.pattern}", pair_shapes(m, m.name))
        for m in modules
        if m.kind != "parameter"
    )
    text = [module for module in modules if module.is_text_layer]
    plain = {
        name: shape for module in text for name, shape in pair_shapes(module, module.name).items()
    }
    yield AdapterVariant("all linear modules of layers", plain)
    yield from _settings_variants(text, plain)
    yield from _tensor_variants(modules, text, plain)
    yield from _prefix_variants(text, plain)


def _settings_variants(
    text: list[HfModule], plain: dict[str, tuple[int, ...]]
) -> Iterator[AdapterVariant]:
    """The same tensors under other settings."""
    leaf = text[0].name.rpartition(".")[2]
    yield AdapterVariant("rsLoRA", plain, {"use_rslora": True})
    yield AdapterVariant("alpha_pattern", plain, {"alpha_pattern": {leaf: 32}})
    wide = {
        name: shape
        for module in text
        for name, shape in pair_shapes(module, module.name, 32).items()
    }
    yield AdapterVariant("rank 32", wide, {"r": 32})
    yield AdapterVariant("bias all", plain, {"bias": "all"})
    yield AdapterVariant("PiSSA", plain, {"init_lora_weights": "pissa"})
    yield AdapterVariant("layer_replication", plain, {"layer_replication": [[0, 2], [1, 2]]})
    dora = {f"{PREFIX}{module.name}.lora_magnitude_vector": (module.shape[-2],) for module in text}
    yield AdapterVariant("DoRA", {**plain, **dora}, {"use_dora": True})
    biases = {f"{PREFIX}{module.name}.lora_B.bias": (module.shape[-2],) for module in text}
    yield AdapterVariant("lora_bias", {**plain, **biases}, {"lora_bias": True})


def _tensor_variants(
    modules: list[HfModule], text: list[HfModule], plain: dict[str, tuple[int, ...]]
) -> Iterator[AdapterVariant]:
    """With tensors besides those of the layers."""
    ends = {end: m for m in modules for end in ("embed_tokens", "lm_head") if m.name.endswith(end)}
    for end, module in ends.items():
        saved = {f"{PREFIX}{module.name}.weight": module.shape}
        yield AdapterVariant(
            f"modules_to_save {end}", {**plain, **saved}, {"modules_to_save": [end]}
        )
    unknown = HfModule("", "linear", text[0].name.rpartition(".")[0] + ".other_proj", text[0].shape)
    yield AdapterVariant(
        "a module that no model has", {**plain, **pair_shapes(unknown, unknown.name)}
    )
    if "embed_tokens" in ends:
        name = f"{PREFIX}{ends['embed_tokens'].name}.token_adapter.trainable_tokens_delta"
        config = {"trainable_token_indices": {"embed_tokens": [1, 2]}}
        yield AdapterVariant(
            "trainable tokens", {**plain, name: (2, ends["embed_tokens"].shape[1])}, config
        )


def _prefix_variants(
    text: list[HfModule], plain: dict[str, tuple[int, ...]]
) -> Iterator[AdapterVariant]:
    """The same tensors under the names that other classes and releases give."""
    own = next((prefix for prefix in TEXT_PREFIXES if text[0].name.startswith(prefix)), None)
    yield AdapterVariant(
        "without base_model.model.",
        {name.removeprefix(PREFIX): shape for name, shape in plain.items()},
    )
    if own is None:
        return
    for other in TEXT_PREFIXES:
        if other != own:
            renamed = {
                name.replace(PREFIX + own, PREFIX + other, 1): shape
                for name, shape in plain.items()
            }
            yield AdapterVariant(f"layers under {other}", renamed)
