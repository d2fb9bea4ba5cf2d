"""The same weights give different results with this config.json than with the base's.

## What it does
Compares the settings in config.json that change results without changing shapes with those of the base: rotary
positions (theta, scaling, in the old and the new spelling), attention window, soft caps, scales, the norms' epsilon,
the activation function, how many experts a token is given to. Where the matrices of attention have the base's shapes,
the numbers of heads and their width are compared as well.

## Why it is bad
Such a setting is not trained but copied: by a converter, a merge tool, or a run whose configuration overrode it. The
weights fit and nothing fails, but the model answers a little worse, or breaks down beyond the first few thousand
tokens.

## Example
```yaml
llama: 2
config: {rope_theta: 10000.0}
base: {llama: 2, config: {rope_theta: 500000.0}}
```

## Use instead
```yaml
llama: 2
config: {rope_parameters: {rope_theta: 500000.0, rope_type: default}}
base: {llama: 2, config: {rope_theta: 500000.0}}
```

## Fix safety
Copying it back from the base is safe, unless the model was trained with the changed setting (longer positions).

## References
- axolotl-ai-cloud/axolotl#383, modelscope/ms-swift#2340, vllm-project/vllm#56066
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.checkpoint.read_text_part_of_model_config import first_set_text_model_setting
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

CONFIG = "config.json"
COMPARED_KEYS = (
    "sliding_window",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "layer_norm_eps",
    "hidden_act",
    "hidden_activation",
    "partial_rotary_factor",
    "logit_scale",
    "logits_scaling",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "norm_topk_prob",
    "routed_scaling_factor",
    "n_group",
    "topk_group",
)
"""Compared where both name them: releases drop and rename others, which then have their default"""
HEAD_KEYS = ("num_attention_heads", "num_key_value_heads", "head_dim")
"""Half as many heads of double width have the same shapes, and cut queries and keys in other places"""
ROPE_THETA, ROPE_SCALING = "rope_theta", "rope_scaling"
OFF_WHERE_NULL = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
"""Settings whose null means that the model does without: another thing than a key that is left out"""
OFF = "off"
FULL_ATTENTION = "full_attention"
PLAIN_ROPE = ("default", None)
"""Types of rotary positions that scale nothing"""


class ModelSettingsDifferFromBase(CheckpointRule):
    code = "CKP038"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    compares = True
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        base = self.subject.base
        if base is None or not base.config or not self.subject.config:
            return Unmet(f"{CONFIG} is not in both folders")
        return None

    def measurement_if_clean(self) -> str:
        """The settings that are the base's."""
        base = self.subject.base
        assert base is not None, "else the rule is not judged"
        own, of_base = self._settings_of_both(base)
        same = [name for name in own if name in of_base]
        return f"{len(same)} settings are the base's: {', '.join(same) or 'both name none'}"

    def findings(self) -> Iterator[Finding]:
        base = self.subject.base
        if base is None or not base.config or not self.subject.config:
            return
        own, of_base = self._settings_of_both(base)
        changed = {
            name: (of_base[name], own.get(name))
            for name in of_base
            if _is_changed(name, of_base[name], own)
        }
        if ROPE_SCALING in own and ROPE_SCALING not in of_base:
            changed[ROPE_SCALING] = (None, own[ROPE_SCALING])
        if not changed:
            return
        texts = [
            f"{name} is {_show(now)} here but {_show(before)} in the base"
            for name, (before, now) in changed.items()
        ]
        yield self.finding(
            f"the same weights give different results than with the base's {CONFIG}: {texts[0]}",
            f"copy {' and '.join(changed)} from the base's {CONFIG} into {self.subject.folder.name}/{CONFIG}, unless"
            " the model was trained with the changed value",
            cases=[Case(text, file=CONFIG) for text in texts],
            count=len(changed),
        )

    def _settings_of_both(self, base: Checkpoint) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings that are compared, of this folder and of its base."""
        keys: tuple[str, ...] = COMPARED_KEYS
        if _shapes_of_attention(self.subject) == _shapes_of_attention(base) != {}:
            keys = (*COMPARED_KEYS, *HEAD_KEYS)
        return (
            _comparable_settings(self.subject.config, keys),
            _comparable_settings(base.config, keys),
        )


def _shapes_of_attention(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """The shapes of the matrices that make queries and keys, by name."""
    return {
        name: tensor.shape
        for name, tensor in checkpoint.tensors.items()
        if name.endswith(("q_proj.weight", "k_proj.weight"))
    }


def _comparable_settings(config: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The settings that are compared, rotary positions in one way of writing."""
    found = {name: first_set_text_model_setting(config, name) for name in keys}
    for name in OFF_WHERE_NULL:
        if found[name] is None and _is_null_in_text_part(config, name):
            found[name] = OFF
    # Qwen's files name a window that nothing uses.
    if first_set_text_model_setting(config, "use_sliding_window") is False:
        found["sliding_window"] = OFF
    found[ROPE_THETA], found[ROPE_SCALING] = _rotary_theta_and_scaling(config)
    return {name: value for name, value in found.items() if value is not None}


def _is_null_in_text_part(config: Mapping[str, Any], name: str) -> bool:
    """Does config.json name a setting and give it null, at its top or in its part for text?"""
    part = config.get("text_config")
    parts = (config, part) if isinstance(part, Mapping) else (config,)
    return any(name in one and one[name] is None for one in parts)


def _rotary_theta_and_scaling(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """Theta and scaling: transformers 5 writes both into `rope_parameters`, releases before it into two keys.

    Where layers differ (Gemma 3), the entry of full attention is what the two keys were about.
    """
    parameters = first_set_text_model_setting(config, "rope_parameters")
    if isinstance(parameters, Mapping):
        parameters = parameters.get(FULL_ATTENTION, parameters)
    scaling = first_set_text_model_setting(config, "rope_scaling")
    merged = dict(scaling) if isinstance(scaling, Mapping) else {}
    merged |= parameters if isinstance(parameters, Mapping) else {}
    theta = merged.pop("rope_theta", None)
    if theta is None:
        theta = first_set_text_model_setting(config, ROPE_THETA)
    # The key's name of before, which some files hold beside the new one.
    former_kind = merged.pop("type", None)
    kind = merged.pop("rope_type", former_kind)
    return theta, None if kind in PLAIN_ROPE else {"rope_type": kind, **merged}


def _is_changed(name: str, before: Any, own: Mapping[str, Any]) -> bool:
    """Is a setting of the base another one here? Left out, only positions count: they have a default of their own."""
    if name not in own:
        return name in (ROPE_THETA, ROPE_SCALING)
    now = own[name]
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        # Releases write out defaults of a scaling that others leave out.
        return any(_do_values_differ(before[key], now[key]) for key in before.keys() & now.keys())
    return _do_values_differ(before, now)


def _do_values_differ(before: Any, now: Any) -> bool:
    """Are two values different, numbers by more than their rounding?"""
    if isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return not math.isclose(before, now, rel_tol=1e-6)
    return bool(before != now)


def _show(value: Any) -> str:
    return "not set" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
