"""Reads the TOML of prime-rl (`uv run rl @ rl.toml`): the settings of trainer, orchestrator and inference in one file.

What earlier releases called otherwise (`rollouts_per_example`, `orchestrator.sampling.max_tokens`) is known by today's
name too. Settings that stand in several places (`model.name` for all, or one for each part) are read where prime-rl
looks first. The rows are not read: they come from environments of a package of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import KeyPath, LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft
from truetune.settings.stacks.read_nested_rl_settings import (
    draft_with_dotted_names,
    set_field_to_number,
)

PRIME_RL_RELEASE = "0.7"
ORCHESTRATOR, TRAINER = "orchestrator", "trainer"
PRIME_RL_KEYS = frozenset((
    "trainer", "orchestrator", "inference", "env_vars", "run", "output_dir", "clean", "log", "ckpt", "resume",
    "monitors", "model", "tokenizer", "max_steps", "seq_len", "weight_broadcast", "rollout_transport", "deployment",
    "slurm", "dry_run", "wandb", "max_async_level", "async_level", "trainer_gpu_ids", "inference_gpu_ids", "bench",
    "clean_output_dir", "inference_gpus", "trainer_gpus", "teacher_inference", "experimental",
))  # fmt: skip
"""Keys at the top, those of earlier releases too"""
OLD_NAMES: tuple[tuple[KeyPath, KeyPath], ...] = (
    (("orchestrator", "rollouts_per_example"), ("orchestrator", "group_size")),
    (("orchestrator", "rollouts_per_prompt"), ("orchestrator", "group_size")),
    (("orchestrator", "sampling"), ("orchestrator", "train", "sampling")),
    (
        ("orchestrator", "sampling", "max_tokens"),
        ("orchestrator", "train", "sampling", "max_completion_tokens"),
    ),
    (("inference", "model", "max_model_len"), ("inference", "vllm", "max_model_len")),
)
"""Where earlier releases had a setting -> where it is today"""
DEFAULTS: dict[str, Any] = {
    f"{TRAINER}.optim.lr": 1e-6,
    f"{ORCHESTRATOR}.group_size": 1,
    f"{ORCHESTRATOR}.train.sampling.temperature": 1.0,
}
GROUP_ALGORITHMS = ("grpo", "echo", "max_rl", "hierarchical_grpo")
"""Values of `orchestrator.algo.type` that compare the answers to a task with each other"""


def prime_rl_keys() -> frozenset[str]:
    """The keys at the top of prime-rl's files."""
    return PRIME_RL_KEYS


def is_prime_rl(value: Mapping[Any, Any]) -> bool:
    """Are these settings of prime-rl: tables of an orchestrator and of what it talks to?"""
    others = ("trainer", "inference", "deployment", "model")
    return isinstance(value.get(ORCHESTRATOR), Mapping) and any(
        isinstance(value.get(name), Mapping) for name in others
    )


def read_prime_rl_config(document: LocatedDocument) -> Config:
    """The settings of prime-rl in a file. Raises SpecError."""
    document = _with_todays_names(document)
    value = document.value if isinstance(document.value, Mapping) else {}
    draft = draft_with_dotted_names(document, "prime-rl", PRIME_RL_RELEASE, DEFAULTS)
    _show_old_names(draft)
    algorithm = str(draft.get(f"{ORCHESTRATOR}.algo.type") or "grpo")
    method = "grpo" if algorithm in GROUP_ALGORITHMS else "ppo"
    draft.put("training.method", method, f"{ORCHESTRATOR}.algo.type")
    draft.take("model", "model.name", f"{TRAINER}.model.name", made=str)
    set_field_to_number(draft, "training.learning_rate", f"{TRAINER}.optim.lr")
    set_field_to_number(draft, "training.weight_decay", f"{TRAINER}.optim.weight_decay")
    set_field_to_number(draft, "training.max_grad_norm", f"{TRAINER}.optim.max_norm")
    set_field_to_number(draft, "training.max_steps", "max_steps")
    set_field_to_number(draft, "training.warmup_steps", f"{TRAINER}.scheduler.warmup_steps")
    lora = draft.get(f"{TRAINER}.model.lora.rank")
    if isinstance(lora, int) and lora > 0:
        alpha = draft.get(f"{TRAINER}.model.lora.alpha")
        settings = {"r": lora, "lora_alpha": alpha if isinstance(alpha, (int, float)) else 32}
        draft.put("training.lora", settings, f"{TRAINER}.model.lora.rank")
    draft.notes.append("settings of prime-rl: its rows are not read; name them beside it")
    return draft.make_config({*draft.values, *map(str, value)}, None, ())


def _show_old_names(draft: ConfigDraft) -> None:
    """Have the places of settings with an earlier name say that name, which the file's writer knows."""
    where = dict(draft.where)
    # The last entries are parts of earlier ones, so the more exact name wins.
    for old_keys, todays_keys in OLD_NAMES:
        old, now = (".".join(map(str, keys)) for keys in (old_keys, todays_keys))
        for name, place in draft.where.items():
            rest = name.removeprefix(now)
            written = draft.where.get(old + rest)
            is_part = name == now + rest and rest[:1] in ("", ".")
            if is_part and written is not None and written.line == place.line:
                where[name] = written
    draft.where = where


def _with_todays_names(document: LocatedDocument) -> LocatedDocument:
    """The document with the settings of earlier releases under today's names as well, at their old places."""
    if not isinstance(document.value, Mapping):
        return document
    value = _copy_of_tables(document.value)
    spots = dict(document.spots)
    for old, now in OLD_NAMES:
        old_value = _value_at(value, old)
        if old_value is None or _value_at(value, now) is not None:
            continue
        _set_value(
            value, now, _copy_of_tables(old_value) if isinstance(old_value, Mapping) else old_value
        )
        for keys, spot in document.spots.items():
            if keys[: len(old)] == old:
                spots.setdefault((*now, *keys[len(old) :]), spot)
    return replace(document, value=value, spots=spots)


def _copy_of_tables(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """A copy of tables within tables."""
    return {
        key: _copy_of_tables(one) if isinstance(one, Mapping) else one for key, one in table.items()
    }


def _value_at(table: Mapping[Any, Any], keys: KeyPath) -> Any:
    """The value that these keys lead to; None if there is none."""
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _set_value(table: dict[Any, Any], keys: KeyPath, value: Any) -> None:
    """Set the value that these keys lead to, with the tables on the way."""
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        table = inner
    table[keys[-1]] = value
