"""Where the experts of models of transformers are, and what LoRA of peft reaches of them, measured for each type.

A mixture of experts has its MLPs many times over. Up to transformers 4 they were linear layers, which peft finds by
their names. In transformers 5 those of one layer are one parameter of three dimensions, which no name in
`target_modules` reaches. peft has two ways to it: `target_parameters`, and, from 0.19 on and for some types, a table by
which it takes the old names for these parameters. The same table takes the names away from linear layers that are
called alike: shared experts and dense layers are left out then. None of this is warned of.

Measured with small models on the meta device (`python -m bench.experts_of_model_types --write`), for each pair of
releases in the table. The trade-off: releases in between are taken for the last measured one before them, and a type
that is not in the table is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

Part = Literal["experts", "router", "shared", "dense", "attention"]
FIRST_PEFT_RENAMING_LISTS = "0.19.0"
FIRST_PEFT_RENAMING_ALL_LINEAR = "0.20.0"
"""Before, `all-linear` and patterns meant linear layers alone, by peft's own code"""
LAYER_PREFIXES = (
    "model.layers.0",
    "model.layers.7",
    "model.language_model.layers.7",
    "model.decoder.layers.7",
)
"""Before the name inside of a layer. Layer 7 beside 0: a pattern may leave out the first, or choose by digits"""
FIRST_TRANSFORMERS_WITH_FUSED_EXPERTS = "5.0.0"


@dataclass(frozen=True, slots=True)
class ExpertsOfModelType:
    """Where a model of one type has its experts and its router, with one release of transformers."""

    model_type: str
    experts: tuple[str, ...]
    """Parameters, inside of a layer: `mlp.experts.gate_up_proj`, `mlp.experts.*.up_proj.weight`"""
    fused: bool
    """The experts of a layer are one parameter, and no linear layers"""
    router: tuple[str, ...]
    """Parameters, inside of a layer: `mlp.gate.weight`"""
    linear: tuple[str, ...]
    """Linear layers, inside of a layer, those of experts with a star for their number"""
    renamed_targets: Mapping[str, str]
    """Names of target_modules -> the parameter that peft takes them for, from 0.19 on"""
    count_setting: str | None
    """The setting of config.json that says how many experts there are"""
    chosen_setting: str | None
    """The setting that says how many of them a token is given to"""
    returns_router_logits: bool
    """Does config.json have `output_router_logits`, which the loss for the balance of the experts needs?"""
    balance_coefficient: float | None
    """The default of `router_aux_loss_coef`; None where the type has no such loss"""


@dataclass(frozen=True, slots=True)
class LoraReach:
    """What an adapter reaches of a mixture of experts."""

    adapted: frozenset[str]
    """Parameters, inside of a layer"""
    facts: ExpertsOfModelType
    missing_of_pair: tuple[str, ...] = ()
    """Names without which peft refuses, as they are one parameter with others that are named"""

    def share(self, part: Part) -> float | None:
        """The share of the parameters of one part that are adapted; None where the type has no such part."""
        names = _parameters_of_part(self.facts, part)
        return sum(name in self.adapted for name in names) / len(names) if names else None

    def left_out(self, part: Part) -> list[str]:
        """The parameters of one part that are not adapted."""
        return [name for name in _parameters_of_part(self.facts, part) if name not in self.adapted]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The types that were measured with one pair of releases."""

    transformers: str
    peft: str
    types: Mapping[str, ExpertsOfModelType]
    reach: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Type -> list of targets -> part of the model -> share that peft adapted"""


@cache
def load_measurements() -> tuple[Measurement, ...]:
    """The measurements, from the oldest release of transformers on."""
    raw = parse_json(
        files(__package__).joinpath("experts_of_model_types.json").read_bytes(), RESULT
    )
    return tuple(_parse_measurement(one) for one in raw)


def _parse_measurement(raw: Mapping[str, Any]) -> Measurement:
    """One measurement, from its part of the table."""
    rows: Mapping[str, Mapping[str, Any]] = raw["types"]
    return Measurement(
        raw["transformers"],
        raw["peft"],
        {model_type: _parse_facts(model_type, row) for model_type, row in rows.items()},
        {model_type: row["lora"] for model_type, row in rows.items()},
    )


def _parse_facts(model_type: str, row: Mapping[str, Any]) -> ExpertsOfModelType:
    """The facts on one type, from its line of the table."""
    return ExpertsOfModelType(
        model_type=model_type,
        experts=tuple(row["experts"]),
        fused=row["fused"],
        router=tuple(row["router"]),
        linear=tuple(row["linear"]),
        renamed_targets=row["renamed_targets"],
        count_setting=row["count_setting"],
        chosen_setting=row["chosen_setting"],
        returns_router_logits=row["returns_router_logits"],
        balance_coefficient=row["balance_coefficient"],
    )


def experts_of_model_type(
    model_type: str, *, has_fused_experts: bool = True
) -> ExpertsOfModelType | None:
    """The facts on a type, with the newest measured release; None where it was not measured.

    Args:
        model_type: of config.json.
        has_fused_experts: does transformers 5 or newer run? Else the facts are those of the last release 4.
    """
    names = (model_type, f"{model_type}_text")
    for measurement in reversed(load_measurements()):
        is_new = not measurement.transformers.startswith("4.")
        facts = next((measurement.types[name] for name in names if name in measurement.types), None)
        if is_new == has_fused_experts and facts is not None:
            return facts
    return None


def reach_of_lora(
    facts: ExpertsOfModelType,
    targets: str | Sequence[str],
    parameters: Sequence[str] = (),
    *,
    renames_lists: bool = True,
    renames_all_linear: bool = True,
) -> LoraReach:
    """What an adapter reaches, as peft matches names.

    Args:
        facts: on the type of the model.
        targets: `all-linear`, or names of target_modules; a pattern is not matched here.
        parameters: names of target_parameters.
        renames_lists: is peft 0.19 or newer, which takes some names for parameters of the experts?
        renames_all_linear: is peft 0.20 or newer, which does so for `all-linear` too?
    """
    renames = renames_all_linear if targets == "all-linear" else renames_lists
    renamed = facts.renamed_targets if renames else {}
    names = _names_of_targets(facts, targets, renamed)
    taken = {name: renamed[last] for name in names if (last := name.rpartition(".")[2]) in renamed}
    modules = [name for name in names if name not in taken]
    adapted = {
        *_named_among((*facts.experts, *facts.router), [*parameters, *taken.values()]),
        *(f"{module}.weight" for module in _named_among(facts.linear, modules)),
    }
    return LoraReach(frozenset(adapted), facts, _missing_of_pair(taken, renamed))


def _named_among(places: Sequence[str], names: Sequence[str]) -> list[str]:
    """The parameters or layers that one of the names means."""
    return [place for place in places if any(is_name_of(name, place) for name in names)]


def last_names_of_linear_layers(facts: ExpertsOfModelType) -> list[str]:
    """The last parts of the names of all linear layers but the head, as LLaMA-Factory's `all` makes a list of them."""
    return sorted({module.rpartition(".")[2] for module in facts.linear})


def names_for_pattern(facts: ExpertsOfModelType) -> dict[str, str]:
    """Full names that a pattern of target_modules is tried on -> the same inside of a layer.

    With the names of experts before transformers 5, which peft tries too, where it takes them for parameters.
    """
    inside = [*(name.replace(".*", ".0") for name in facts.linear), *_former_names(facts)]
    return {
        f"{prefix}.{name}": name.replace(".0", ".*") for prefix in LAYER_PREFIXES for name in inside
    }


def _former_names(facts: ExpertsOfModelType) -> Iterator[str]:
    """The names that layers of experts had before transformers 5: `mlp.experts.gate_proj`."""
    for former, parameter in facts.renamed_targets.items():
        for name in facts.experts:
            container, _, last = name.rpartition(".")
            if last == parameter:
                yield f"{container}.{former}"


def _names_of_targets(
    facts: ExpertsOfModelType, targets: str | Sequence[str], renamed: Mapping[str, str]
) -> list[str]:
    """The names that the targets mean; for `all-linear`, all linear layers and the names that peft adds to them."""
    if targets == "all-linear":
        return [*facts.linear, *renamed]
    return [targets] if isinstance(targets, str) else list(targets)


def is_name_of(name: str, inside: str) -> bool:
    """Does a name mean a parameter or a layer: as the end of it, or with the layer's number before it?"""
    is_end = inside == name or inside.endswith(f".{name}")
    return is_end or name.endswith(f".{inside}")


def _missing_of_pair(taken: Mapping[str, str], renamed: Mapping[str, str]) -> tuple[str, ...]:
    """The names that peft asks for beside those that were taken for a parameter."""
    lasts = {name.rpartition(".")[2] for name in taken}
    return tuple(
        sorted(
            name
            for name, parameter in renamed.items()
            if name not in lasts and any(renamed[last] == parameter for last in lasts)
        )
    )


def _parameters_of_part(facts: ExpertsOfModelType, part: Part) -> Sequence[str]:
    """The parameters of one part of a layer."""
    if part == "experts":
        return facts.experts
    if part == "router":
        return facts.router
    return list(_weights_of_linear_layers(facts, part))


def _weights_of_linear_layers(facts: ExpertsOfModelType, part: Part) -> Iterator[str]:
    """The weights of linear layers of one part: shared experts, attention, or else."""
    for module in facts.linear:
        weight = f"{module}.weight"
        if weight in facts.experts or weight in facts.router:
            continue
        if _part_of_linear_layer(module) == part:
            yield weight


def _part_of_linear_layer(module: str) -> Part:
    """The part that a linear layer belongs to, by its name."""
    if "shared" in module:
        return "shared"
    is_attention = any(word in module for word in ("attn", "attention", "mixer"))
    return "attention" if is_attention else "dense"


NAMES_OF_TYPES: Mapping[str, str] = {
    "deepseek_v2": "DeepSeek-V2", "deepseek_v3": "DeepSeek-V3, R1, Kimi K2, Moonlight", "dots1": "dots.llm1",
    "ernie4_5_moe": "ERNIE 4.5", "gemma4_text": "Gemma 4 with experts", "glm4_moe": "GLM-4.5, 4.6",
    "gpt_oss": "gpt-oss", "granitemoe": "Granite 3 MoE", "granitemoehybrid": "Granite 4.0 H",
    "hunyuan_v1_moe": "Hunyuan", "jamba": "Jamba",
    "kimi_linear": "Kimi Linear", "lfm2_moe": "LFM2 with experts", "llama4_text": "Llama 4", "minimax_m2": "MiniMax-M2",
    "mixtral": "Mixtral", "nemotron_h": "Nemotron 3 Nano", "olmoe": "OLMoE", "phimoe": "Phi-3.5-MoE",
    "qwen2_moe": "Qwen1.5-MoE, Qwen2-57B", "qwen3_5_moe_text": "Qwen3.5 with experts", "qwen3_moe": "Qwen3 A3B, A22B",
    "qwen3_next": "Qwen3-Next",
}  # fmt: skip
"""Published models of a type, for readers"""
EXACT_PLANS: Mapping[str, str] = {
    **dict.fromkeys(("deepseek_v3", "gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen3_moe"), "all, trained"),
    **dict.fromkeys(("deepseek_v2", "qwen2_moe"), "all"),
}  # fmt: skip
"""Types whose parameters `truetune plan` counts exactly: all, and those that LoRA trains"""
PARTS_ON_PAGE: tuple[Part, ...] = ("experts", "router", "shared", "dense")


def lines_of_page_table() -> list[str]:
    """The table of docs/experts.md: what LoRA reaches of each type, with the newest measured releases."""
    newest = load_measurements()[-1]
    lines = [
        "| model type | models | all-linear | MLP names | w1 w2 w3 | exact plan |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for model_type in sorted(newest.types):
        reach = newest.reach[model_type]
        cells = [_reached_parts(reach[name]) for name in ("all-linear", "mlp names", "w1 w2 w3")]
        models, plan = NAMES_OF_TYPES.get(model_type, ""), EXACT_PLANS.get(model_type, "")
        lines.append(f"| {' | '.join((model_type, models, *cells, plan))} |")
    return lines


def _reached_parts(reach: Mapping[str, Any]) -> str:
    """The parts of a model that an adapter is on, besides attention."""
    if "refused" in reach:
        return "peft stops"
    parts = [
        part if reach[part] == 1 else f"part of {part}" for part in PARTS_ON_PAGE if reach.get(part)
    ]
    return ", ".join(parts) or "none"
