"""Predicts what an engine's loader makes of an adapter, from the headers of its file and from JSON files alone.

Each tensor is followed as the loader follows it: its name is changed, its module is looked up among those of the
engine's class of models, and it is served, left out in silence, or refused. Properties of adapter_config.json (DoRA,
rsLoRA, patterns, biases, rank) are looked up in the table. The trade-off: what the table does not know is `None`, and
the adapter is then not judged, for a guess that it is served is worse than no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from truetune.checkpoint.adapter_delta import adapter_scale
from truetune.checkpoint.adapter_tensor_names import (
    BASE_LAYER,
    PEFT_PREFIX,
    AdapterTensor,
    parse_adapter_tensor,
)
from truetune.checkpoint.engine_adapter_loaders.read_engine_loaders import (
    Effect,
    EngineLoader,
    LoaderArchitecture,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor

TEXT_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
"""How classes and releases of transformers begin the names of the layers of text"""
FACTORS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")
HARMLESS_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
"""Values of init_lora_weights that leave the weights of the base as they are; True and False do as well"""
CONFIG_PROPERTIES = (
    "dora",
    "bias",
    "lora_bias",
    "modules_to_save",
    "weight_changing_init",
    "layer_replication",
    "activated_lora",
    "target_modules_pattern",
)
"""Properties of adapter_config.json that a loader takes, ignores or refuses"""
OWN_TENSORS = ("dora", "bias", "lora_bias", "modules_to_save")
"""Those that put tensors of their own into the file, by which alone a loader goes that reads no settings"""
SETTING_OF_PROPERTY = {
    "dora": "use_dora",
    "bias": "bias",
    "lora_bias": "lora_bias",
    "modules_to_save": "modules_to_save",
    "weight_changing_init": "init_lora_weights",
    "layer_replication": "layer_replication",
    "activated_lora": "alora_invocation_tokens",
    "target_modules_pattern": "target_modules",
}
"""Property -> key of adapter_config.json"""


@dataclass(frozen=True, slots=True)
class TensorFate:
    """What becomes of one tensor of the adapter."""

    tensor: AdapterTensor
    effect: Effect | None
    """None: not known"""
    reason: str
    """The property of the loader that decides it: `unknown_name`, `unknown_place`, ..."""


@dataclass(frozen=True, slots=True)
class ScaleDifference:
    """Modules whose change is served at another scale than it was trained with."""

    setting: str
    """Of adapter_config.json: `use_rslora`, `alpha_pattern`"""
    modules: tuple[str, ...]
    trained: float
    served: float
    """Of the first of the modules"""


@dataclass(frozen=True)
class PredictedLoading:
    """What one release of an engine makes of one adapter on one architecture."""

    loader: EngineLoader
    architecture: LoaderArchitecture
    config: Mapping[str, Any]
    """adapter_config.json"""
    fates: tuple[TensorFate, ...]
    layers: int | None = None
    """Layers of the base; None where its config.json does not say it"""

    @property
    def engine_name(self) -> str:
        """The engine with its release."""
        return f"{self.loader.engine} {self.loader.release}"

    @property
    def rank(self) -> int:
        """The highest rank of the adapter."""
        ranks = [self.config.get("r"), *(self.config.get("rank_pattern") or {}).values()]
        from_tensors = (
            fate.tensor.tensor.shape[0]
            for fate in self.fates
            if fate.tensor.part in ("lora_A", "lora_embedding_A") and fate.tensor.tensor.shape
        )
        return max([0, *(rank for rank in ranks if isinstance(rank, int)), *from_tensors])

    @cached_property
    def properties(self) -> dict[str, Effect | None]:
        """Property of adapter_config.json that is set -> what the loader does with it."""
        return {
            name: self.loader.effect(name)
            for name in CONFIG_PROPERTIES
            if _is_property_set(name, self.config)
            and not (name in OWN_TENSORS and self.loader.effect("settings") == "ignored")
        }

    def with_effect(self, effect: Effect | None) -> tuple[TensorFate, ...]:
        """The tensors that have this fate."""
        return tuple(fate for fate in self.fates if fate.effect == effect)

    @property
    def is_refused(self) -> bool:
        """Does the loader fail on this adapter without further flags?"""
        return self.is_refused_whatever_rank or self.is_rank_over_limit

    @property
    def is_refused_whatever_rank(self) -> bool:
        """Does the loader fail on this adapter even with a flag for its rank?"""
        return (
            not self.architecture.takes_adapters
            or "refused" in self.properties.values()
            or bool(self.with_effect("refused"))
        )

    @property
    def is_rank_over_limit(self) -> bool:
        """Is the rank higher than the engine takes without a flag?"""
        return self.loader.max_rank is not None and self.rank > self.loader.max_rank

    @property
    def is_nothing_served(self) -> bool:
        """Is the adapter loaded, and no tensor of it in use?"""
        return bool(self.fates) and not any(fate.effect in ("served", None) for fate in self.fates)

    @cached_property
    def serving_names(self) -> tuple[str, str] | None:
        """(beginning of the modules' names, the one under which the engine serves all); None where none does."""
        tensors = {fate.tensor.tensor.name: fate.tensor.tensor for fate in self.fates}
        for old in TEXT_PREFIXES:
            beginning = PEFT_PREFIX + old
            if not tensors or not all(name.startswith(beginning) for name in tensors):
                continue
            for new in TEXT_PREFIXES:
                renamed = {
                    name: replace(tensor, name=PEFT_PREFIX + new + name.removeprefix(beginning))
                    for name, tensor in tensors.items()
                }
                other = predict_adapter_loading(
                    self.loader, self.architecture, renamed, self.config, self.layers
                )
                if all(fate.effect == "served" for fate in other.fates):
                    return old, new
        return None

    @cached_property
    def scale_differences(self) -> tuple[ScaleDifference, ...]:
        """The modules that are served at another scale, by the setting that the loader does not read."""
        return tuple(self._find_scale_differences())

    def _find_scale_differences(self) -> Iterator[ScaleDifference]:
        """What the loader's own scale makes of each served module, by setting."""
        for name, setting in (
            ("rslora", "use_rslora"),
            ("alpha_pattern", "alpha_pattern"),
            ("rank_pattern", "rank_pattern"),
        ):
            if not self.config.get(setting) or self.loader.effect(name) != "ignored":
                continue
            # The other settings stay: each finding is about one setting alone.
            other = {key: value for key, value in self.config.items() if key != setting}
            differing = [
                (module, trained, served)
                for module, rank in self._served_ranks().items()
                if (trained := adapter_scale(self.config, module, rank)) is not None
                and (served := adapter_scale(other, module, self._rank_of_scale(name, rank)))
                is not None
                and trained != served
            ]
            if differing:
                modules = tuple(module for module, _, _ in differing)
                yield ScaleDifference(setting, modules, differing[0][1], differing[0][2])

    def _rank_of_scale(self, name: str, rank: int) -> int:
        """The rank by which the loader divides alpha: the general one where it reads no patterns."""
        general = self.config.get("r")
        return general if name == "rank_pattern" and isinstance(general, int) else rank

    def _served_ranks(self) -> dict[str, int]:
        """Module that is served -> its rank."""
        return {
            fate.tensor.module: fate.tensor.tensor.shape[0]
            for fate in self.with_effect("served")
            if fate.tensor.part in ("lora_A", "lora_embedding_A") and fate.tensor.tensor.shape
        }


def predict_adapter_loading(
    loader: EngineLoader,
    architecture: LoaderArchitecture,
    tensors: Mapping[str, StoredTensor],
    config: Mapping[str, Any],
    layers: int | None = None,
    is_head_tied: bool | None = False,
) -> PredictedLoading:
    """What a loader makes of an adapter.

    Args:
        loader: of one release of an engine.
        architecture: of the base, as the loader has it.
        tensors: the adapter's, from the header of its file.
        config: adapter_config.json.
        layers: of the base, where config.json says it.
        is_head_tied: is the base's lm_head its embedding? None: config.json does not say it.
    """
    fates = [
        _fate_of_tensor(loader, architecture, parse_adapter_tensor(tensor))
        for tensor in tensors.values()
    ]
    if loader.effect("tied_head") is not None and is_head_tied is not False:
        fates = [_fate_on_tied_head(loader, fate, is_head_tied) for fate in fates]
    if loader.effect("missing_partner") == "refused":
        fates = _refuse_modules_without_partner(fates, loader.partners)
    if loader.effect("missing_layers") == "ignored" and layers is not None:
        fates = _leave_out_kinds_that_miss_layers(fates, layers)
    return PredictedLoading(loader, architecture, config, tuple(fates), layers)


def _fate_of_tensor(
    loader: EngineLoader, architecture: LoaderArchitecture, tensor: AdapterTensor
) -> TensorFate:
    """What becomes of one tensor."""
    name = tensor.tensor.name
    if tensor.part == "" and f".{BASE_LAYER}." in name:
        return TensorFate(tensor, loader.effect("base_copies"), "base_copies")
    if not name.startswith(PEFT_PREFIX) and loader.effect("names_without_prefix") != "served":
        return TensorFate(tensor, loader.effect("names_without_prefix"), "names_without_prefix")
    module = _module_in_engine(architecture, name)
    effect = architecture.effect_on_module(module)
    # The parts of a picture model that an engine drops are dropped before anything else is looked at.
    if effect == "ignored":
        return TensorFate(tensor, effect, "other_part")
    if tensor.part not in FACTORS or tensor.rest.endswith("bias"):
        return TensorFate(tensor, loader.effect("whole_tensors"), "whole_tensors")
    if effect is not None:
        return TensorFate(tensor, effect, "module")
    return _fate_without_known_module(loader, architecture, tensor, module)


def _fate_without_known_module(
    loader: EngineLoader, architecture: LoaderArchitecture, tensor: AdapterTensor, module: str
) -> TensorFate:
    """What becomes of a factor on a module for which nothing was measured."""
    name = module.rpartition(".")[2]
    if ".experts" in f".{module}" or name in architecture.unknown:
        return TensorFate(tensor, None, "not_known")
    if architecture.names and name in architecture.names:
        return TensorFate(tensor, loader.effect("unknown_place"), "unknown_place")
    return TensorFate(tensor, loader.effect("unknown_name"), "unknown_name")


def _fate_on_tied_head(loader: EngineLoader, fate: TensorFate, is_tied: bool | None) -> TensorFate:
    """The fate where the base has no lm_head of its own, or where that is not known."""
    if fate.effect != "served" or fate.tensor.module.rpartition(".")[2] != "lm_head":
        return fate
    return TensorFate(fate.tensor, loader.effect("tied_head") if is_tied else None, "tied_head")


def _module_in_engine(architecture: LoaderArchitecture, tensor_name: str) -> str:
    """The module of a tensor as the loader calls it."""
    name = tensor_name.removeprefix(PEFT_PREFIX)
    # Prefixes such as `lm_head.` are those of the whole name, so the rest of it is cut off afterwards.
    for rename in architecture.renames:
        name = rename.apply(name)
    return ".".join(_parts_before_factor(name))


def _parts_before_factor(name: str) -> list[str]:
    """The parts of a tensor's name before LoRA's own."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts) if part.startswith("lora_")), len(parts) - 1)
    return parts[:at]


def _refuse_modules_without_partner(
    fates: list[TensorFate], partners: Mapping[str, str]
) -> list[TensorFate]:
    """The fates under a loader that stacks modules (q, k and v), and fails where one of them is missing."""
    modules = {fate.tensor.module for fate in fates if fate.effect == "served"}
    alone = set()
    for module in modules:
        parent, _, leaf = module.rpartition(".")
        if leaf in partners and f"{parent}.{partners[leaf]}" not in modules:
            alone.add(module)
    return [
        TensorFate(fate.tensor, "refused", "missing_partner")
        if fate.tensor.module in alone
        else fate
        for fate in fates
    ]


def _leave_out_kinds_that_miss_layers(fates: list[TensorFate], layers: int) -> list[TensorFate]:
    """The fates under a loader that serves a kind of module only where each layer has one."""
    seen: dict[str, set[str]] = {}
    for fate in fates:
        if fate.effect == "served" and "layers" in fate.tensor.module:
            seen.setdefault(fate.tensor.module.rpartition(".")[2], set()).add(fate.tensor.module)
    short = {leaf for leaf, modules in seen.items() if len(modules) < layers}
    return [
        TensorFate(fate.tensor, "ignored", "missing_layers")
        if fate.effect == "served" and fate.tensor.module.rpartition(".")[2] in short
        else fate
        for fate in fates
    ]


def _is_property_set(name: str, config: Mapping[str, Any]) -> bool:
    """Does adapter_config.json set a property?"""
    value = config.get(SETTING_OF_PROPERTY[name])
    if name == "bias":
        return value not in (None, "none")
    if name == "target_modules_pattern":
        return isinstance(value, str) and value not in ("all-linear", "all")
    if name == "weight_changing_init":
        return isinstance(value, str) and value.lower() not in HARMLESS_INITS
    return bool(value)
