"""`python -m bench.experts_of_model_types [TYPE...] [--write | --page]`: where the experts of models of transformers
are, and what LoRA of peft reaches of them.

A small model of each type is built on the meta device, which holds shapes and no numbers: once with four experts and
once with eight. A parameter that grows with the number of experts is one of the experts, or of the router if it is as
wide as the model. Then peft puts an adapter on it, for each of the lists that users write, and the modules and
parameters that got one are counted. `truetune.trainers.experts_of_model_types` holds the outcome (`--write`), and makes
the table of docs/experts.md of it (`--page`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from packaging.version import Version

from bench.packing_of_model_types import SIZES, SMALL
from truetune.trainers.experts_of_model_types import lines_of_page_table

TABLE = Path(__file__).parents[1] / "src/truetune/trainers/experts_of_model_types.json"
COUNT_SETTINGS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN_SETTINGS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_k",
    "moe_topk",
    "top_k_experts",
    "top_k",
)
FEW, MANY = 4, 8
MAX_PARAMETERS = 200_000_000
"""A type whose sizes have other names stays large; it is not measured then."""
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_NAMES = ("gate_proj", "up_proj", "down_proj")
TARGETS: Mapping[str, str | list[str]] = {
    "all-linear": "all-linear",
    "mlp names": [*ATTENTION, *MLP_NAMES],
    "w1 w2 w3": [*ATTENTION, "w1", "w2", "w3"],
    "attention": list(ATTENTION),
}
"""What users write into target_modules, by the name that the table gives it"""
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
EXPERT_NUMBER = re.compile(r"\.\d+(?=\.)")
_EXTRA_SIZES: Mapping[str, Mapping[str, Any]] = {
    "gemma4_text": {"enable_moe_block": True, "top_k_experts": 2, "vocab_size_per_layer_input": 64,
                    "hidden_size_per_layer_input": 0, "num_global_key_value_heads": 2, "global_head_dim": 8,
                    "layer_types": ["full_attention"] * 4},
    "nemotron_h": {"layers_block_type": ["moe", "attention", "moe", "moe"]},
    "jamba": {"expert_layer_period": 1, "expert_layer_offset": 0},
    "lfm2_moe": {"num_dense_layers": 0},
    "llama4_text": {"interleave_moe_layer_step": 1, "intermediate_size_mlp": 48, "moe_layers": [0, 1, 2, 3]},
    "ernie4_5_moe": {"moe_layer_start_index": 0, "moe_layer_end_index": 3},
}  # fmt: skip


def candidate_types() -> list[str]:
    """The types whose default configuration has a number of experts, in the order of their names."""
    types = []
    auto: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    for model_type in sorted(auto.CONFIG_MAPPING_NAMES):
        try:
            defaults = transformers.AutoConfig.for_model(model_type)
        except Exception:  # some types have no defaults, or need a package that is not here
            continue
        if any(name in _setting_names(defaults) for name in COUNT_SETTINGS):
            types.append(model_type)
    return types


def _setting_names(config: Any) -> set[str]:
    other_names = getattr(config, "attribute_map", {})
    return {*config.to_dict()} - {*other_names}


def measure_experts(model_type: str) -> dict[str, Any]:
    """What the table holds of one type.

    Raises:
        ValueError: with these sizes there is no small model of this type, or it has no experts.
    """
    few, many = _shapes(model_type, FEW), _shapes(model_type, MANY)
    model = _meta_model(model_type, FEW)
    experts, router = _split_expert_parameters(few, many)
    if not experts:
        raise ValueError(f"{model_type}: no parameter grows with the number of experts")
    defaults = transformers.AutoConfig.for_model(model_type)
    names = _setting_names(defaults)
    modules = dict(model.named_modules())
    fused = {_place_in_layer(name) for name in experts if not _is_linear_weight(name, modules)}
    measured: dict[str, Any] = {
        "experts": sorted({_place_in_layer(name) for name in experts}),
        "fused": bool(fused),
        "router": sorted({_place_in_layer(name) for name in router}),
        "router_is_linear": any(_is_linear_weight(name, modules) for name in router),
        "shared": sorted(
            {_place_in_layer(name) for name in few if "shared" in name and name.endswith("weight")}
        ),
        "count_setting": next((name for name in COUNT_SETTINGS if name in names), None),
        "chosen_setting": next((name for name in CHOSEN_SETTINGS if name in names), None),
        "returns_router_logits": "output_router_logits" in names,
        "balance_coefficient": getattr(defaults, "router_aux_loss_coef", None),
        "transposed": _axis_of_hidden(experts, few) == 1,
        "linear": sorted(
            {
                _place_in_layer(name.removesuffix(".weight"))
                for name in _linear_weights(model)
                if LAYER.search(name)
            }
        ),
        "renamed_targets": _renamed_targets(model_type),
        "lora": {
            name: _reach(lambda: _meta_model(model_type, FEW), targets, experts, router)
            for name, targets in TARGETS.items()
        },
    }
    if fused:
        measured["lora"]["target_parameters"] = _reach(
            lambda: _meta_model(model_type, FEW), list(ATTENTION), experts, router, sorted(fused)
        )
    return measured


def _renamed_targets(model_type: str) -> dict[str, str]:
    """Names of target_modules that this release of peft takes for parameters of the experts or of the router."""
    try:
        conversion: Any = importlib.import_module("peft.utils.transformers_weight_conversion")
    except ImportError:  # releases before 0.19 rename nothing
        return {}
    if conversion.get_checkpoint_conversion_mapping(model_type) is None:
        return {}
    family = conversion._MODEL_TO_CONVERSION_PATTERN.get(model_type)
    return dict(conversion._MOE_TARGET_MODULE_MAPPING.get(family, {}))


def _meta_model(model_type: str, experts: int) -> Any:
    counts = dict.fromkeys(COUNT_SETTINGS, experts)
    sizes = {
        **SMALL, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_layer_freq": 1, "decoder_sparse_step": 1,
        **SIZES.get(model_type, {}), **_EXTRA_SIZES.get(model_type, {}), "moe_intermediate_size": 20,
    }  # fmt: skip
    sizes = {**{name: size for name, size in sizes.items() if size is not None}, **counts}
    try:
        config = transformers.AutoConfig.for_model(model_type, **sizes)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    except Exception as error:  # each type refuses sizes that do not fit in its own way
        raise ValueError(f"{model_type}: no small model: {error}") from error
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MAX_PARAMETERS:
        raise ValueError(f"{model_type}: no small model: it has {count:,} parameters")
    return model


def _shapes(model_type: str, experts: int) -> dict[str, tuple[int, ...]]:
    named = _meta_model(model_type, experts).named_parameters()
    return {name: tuple(parameter.shape) for name, parameter in named}


def _split_expert_parameters(
    few: Mapping[str, tuple[int, ...]], many: Mapping[str, tuple[int, ...]]
) -> tuple[list[str], list[str]]:
    """Names of the parameters of experts, and of those of routers."""
    grown = [name for name, shape in few.items() if many.get(name, shape) != shape]
    # Experts that are modules of their own do not grow: there are more of them.
    numbered = {EXPERT_NUMBER.sub(".*", name) for name in many if name not in few}
    modules = [name for name in few if EXPERT_NUMBER.sub(".*", name) in numbered]
    hidden = SMALL["hidden_size"]
    router = [
        name
        for name in grown
        if set(few[name]) <= {FEW, hidden} and len(few[name]) < 3 and "experts." not in name
    ]
    # Biases and corrections of the scores are no matrix that an adapter could be put on.
    matrices = {name for name in (*grown, *modules) if "bias" not in name.rpartition(".")[2]}
    return sorted(matrices - {*router}), sorted(matrices & {*router})


def _place_in_layer(name: str) -> str:
    """The name inside of its layer, with a star for the number of an expert."""
    found = LAYER.search(name)
    inside = name[found.end() :] if found else name
    return re.sub(r"\.\d+(?=\.|$)", ".*", inside)


def _is_linear_weight(name: str, modules: Mapping[str, Any]) -> bool:
    owner, _, last = name.rpartition(".")
    return last in ("weight", "bias") and isinstance(modules.get(owner), torch.nn.Linear)


def _axis_of_hidden(experts: Iterable[str], shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """The axis of the first three-dimensional tensor of experts that makes something of the hidden states."""
    for name in experts:
        if len(shapes[name]) == 3 and "down" not in name and "output" not in name:
            return shapes[name].index(SMALL["hidden_size"], 1)
    return None


def _reach(
    make: Callable[[], Any],
    targets: str | list[str],
    experts: Sequence[str],
    router: Sequence[str],
    parameters: list[str] | None = None,
) -> dict[str, Any]:
    """What an adapter on these targets reaches: parts of the model, or why peft refuses."""
    options: dict[str, Any] = {} if parameters is None else {"target_parameters": parameters}
    config = peft.LoraConfig(r=2, lora_alpha=2, target_modules=targets, **options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped = peft.get_peft_model(make(), config)
    except Exception as error:  # whatever it is, the user's run ends with it
        # A set is written in another order each time.
        reason = re.sub(r"\{[^}]*\}", "...", str(error).split("\n", 1)[0])
        return {"refused": reason}
    adapted = _adapted_parameters(wrapped)
    linear = {name for name in _linear_weights(make()) if name not in (*experts, *router)}
    inside = [name for name in linear if LAYER.search(name)]
    shared = [name for name in inside if "shared" in name]
    attention = [
        name for name in inside if re.search(r"attn|attention|mixer", name) and name not in shared
    ]
    dense = [name for name in inside if name not in (*shared, *attention)]
    parts = {
        "experts": experts,
        "router": router,
        "shared": shared,
        "dense": dense,
        "attention": attention,
    }
    return {
        part: round(sum(name in adapted for name in names) / len(names), 3)
        for part, names in parts.items()
        if names
    }


def _adapted_parameters(model: Any) -> set[str]:
    """The names, in the model without peft, of the parameters that an adapter changes."""
    adapted = set()
    for name, module in model.base_model.model.named_modules():
        if not hasattr(module, "lora_A") or not module.lora_A:
            continue
        plain = ".".join(part for part in name.split(".") if part != "base_layer")
        adapted.add(f"{plain}.{getattr(module, 'parameter_name', 'weight')}")
    return adapted


def _linear_weights(model: Any) -> set[str]:
    return {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def main(arguments: Sequence[str]) -> int:
    """Print what was measured of the types, and with --write put it into the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("types", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(arguments)
    if options.page:
        print("\n".join(lines_of_page_table()))
        return 0
    rows: dict[str, Any] = {}
    for model_type in options.types or candidate_types():
        try:
            rows[model_type] = measure_experts(model_type)
        except ValueError as error:
            print(f"{str(error)[:150]}", file=sys.stderr, flush=True)
    if options.write:
        write_measurement(rows)
    else:
        print(json.dumps(rows, indent=1, sort_keys=True))
    return 0


def write_measurement(rows: Mapping[str, Any]) -> None:
    """Put the rows into the table, for the installed releases; those of other releases stay."""
    releases = {"transformers": transformers.__version__, "peft": peft.__version__}
    old = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else []
    others = [one for one in old if {name: one[name] for name in releases} != releases]
    measured = sorted(
        [*others, {**releases, "types": rows}], key=lambda one: Version(one["transformers"])
    )
    # One line for each type, so that a difference between two measurements can be read.
    parts = []
    for one in measured:
        lines = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(row, sort_keys=True)}"
            for name, row in one["types"].items()
        )
        parts.append(
            f'{{"transformers": "{one["transformers"]}", "peft": "{one["peft"]}", "types": {{\n{lines}\n}}}}'
        )
    TABLE.write_text("[\n" + ",\n".join(parts) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
