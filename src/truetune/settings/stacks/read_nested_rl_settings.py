"""Reads the settings of verl and NeMo RL, whose files are tables within tables, and the overrides of verl's commands.

`actor_rollout_ref.actor.optim.lr` of verl's YAML and the word `actor_rollout_ref.actor.optim.lr=1e-6` of a command are
one setting: both are known by their dotted name here. What decides the method, the rate, LoRA, the epochs and the
lengths has a field of RunSpec; the rest is found by its dotted name. The rows are not read: verl's are Parquet files
that a script of the project makes, NeMo RL's come from a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.settings.config import Config, SettingLocation
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document, location_of_keys
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.suggest_spelling import find_misspelt_key

VERL_RELEASE = "0.8"
NEMO_RL_RELEASE = "0.5"
ACTOR, ROLLOUT, MODEL = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.model",
)
VERL_DEFAULTS: dict[str, Any] = {
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.optim.weight_decay": 0.01,
    f"{ACTOR}.grad_clip": 1.0,
    "trainer.total_epochs": 30,
    "algorithm.adv_estimator": "gae",
}
VERL_SFT_DEFAULTS: dict[str, Any] = {
    "optim.lr": 1e-5,
    "optim.lr_warmup_steps_ratio": 0.1,
    "optim.weight_decay": 0.01,
    "optim.clip_grad": 1.0,
    "trainer.total_epochs": 4,
    "data.max_length": 1024,
}
"""Of `verl.trainer.fsdp_sft_trainer`"""
VERL_KEYS = frozenset((
    "data", "actor_rollout_ref", "critic", "reward_model", "custom_reward_function", "algorithm", "trainer", "defaults",
    "hydra", "ray_kwargs", "ray_init", "reward_manager", "reward", "global_profiler", "transfer_queue", "actor",
    "model", "model_engine", "optim", "ulysses_sequence_parallel_size", "use_remove_padding", "engine", "checkpoint",
    "rollout", "async_training",
))  # fmt: skip
NEMO_RL_KEYS = frozenset((
    "grpo", "sft", "dpo", "loss_fn", "checkpointing", "policy", "data", "env", "logger", "cluster", "defaults",
    "teacher", "distillation", "reward_penalties",
))  # fmt: skip
ALGORITHMS_OF_NEMO_RL = ("grpo", "sft", "dpo")
"""Tables that name the training"""
MAX_DEPTH = 12
"""Tables within tables"""


def verl_keys() -> frozenset[str]:
    """The keys at the top of verl's files."""
    return VERL_KEYS


def nemo_rl_keys() -> frozenset[str]:
    """The keys at the top of NeMo RL's files."""
    return NEMO_RL_KEYS


def is_verl(value: Mapping[Any, Any]) -> bool:
    """Are these settings of verl: the three models of its RL in one table, or its SFT's `partial_pretrain`?"""
    if isinstance(value.get("actor_rollout_ref"), Mapping):
        return True
    model, data = value.get("model"), value.get("data")
    return (
        isinstance(model, Mapping)
        and "partial_pretrain" in model
        and isinstance(data, Mapping)
        and "train_files" in data
    )


def is_nemo_rl(value: Mapping[Any, Any]) -> bool:
    """Are these settings of NeMo RL: a policy, and the table of a training?"""
    policy = value.get("policy")
    return (
        isinstance(policy, Mapping)
        and "model_name" in policy
        and any(isinstance(value.get(name), Mapping) for name in ALGORITHMS_OF_NEMO_RL)
    )


def read_verl_config(document: LocatedDocument) -> Config:
    """The settings of verl in a file, or in the overrides of a command. Raises SpecError."""
    value = document.value if isinstance(document.value, Mapping) else {}
    model = value.get("model")
    is_sft = (
        isinstance(model, Mapping)
        and "partial_pretrain" in model
        and "actor_rollout_ref" not in value
    )
    draft = draft_with_dotted_names(
        document, "verl", VERL_RELEASE, VERL_SFT_DEFAULTS if is_sft else VERL_DEFAULTS
    )
    if is_sft:
        _read_verl_sft(draft)
    else:
        _read_verl_rl(draft)
    draft.notes.append("settings of verl: its rows are not read; name them beside it")
    # Programs on verl (Search-R1, verl-agent) have tables of their own, and other defaults too: their groups of
    # answers are made by a setting of theirs.
    draft.own_keys = not VERL_KEYS.issuperset(map(str, value))
    draft.odd += _misspelt_settings(draft, "verl")
    limit = draft.get("data.max_length") if is_sft else None
    return draft.make_config(
        {*draft.values, *map(str, value)}, limit if isinstance(limit, int) else None, ()
    )


def _misspelt_settings(draft: ConfigDraft, package: str) -> list[SettingLocation]:
    """The settings whose name is a misspelling of one that stands in the same table of the program.

    What has no likeness there is left alone: a table may be filled freely (`override_config`), and a program that
    builds on this one has settings of its own.
    """
    known = load_known_keys(package).classes["names"]
    siblings: dict[str, set[str]] = {}
    for name in known:
        table, _, last = name.rpartition(".")
        siblings.setdefault(table, set()).add(last)
    return [
        draft.where[name]
        for name in draft.values
        if name not in known and _is_misspelt_among(name, siblings) and name in draft.where
    ]


def _is_misspelt_among(name: str, siblings: Mapping[str, set[str]]) -> bool:
    """Is the last part of a dotted name a misspelling of another one in its table?"""
    table, _, last = name.rpartition(".")
    return bool(table) and find_misspelt_key(last, siblings.get(table, set())) is not None


def last_parts_of_verl_names() -> frozenset[str]:
    """What verl's settings are called within their tables."""
    return VERL_KEYS | {
        name.rpartition(".")[2] for name in load_known_keys("verl").classes["names"]
    }


def _read_verl_rl(draft: ConfigDraft) -> None:
    """The fields of a training by rewards."""
    estimator = str(draft.get("algorithm.adv_estimator"))
    draft.put("training.method", "ppo" if estimator == "gae" else "grpo", "algorithm.adv_estimator")
    draft.take("model", f"{MODEL}.path", made=str)
    set_field_to_number(draft, "training.learning_rate", f"{ACTOR}.optim.lr")
    set_field_to_number(draft, "training.weight_decay", f"{ACTOR}.optim.weight_decay")
    set_field_to_number(draft, "training.max_grad_norm", f"{ACTOR}.grad_clip")
    set_field_to_number(draft, "training.num_train_epochs", "trainer.total_epochs")
    # Both count rollouts: the rate is set once for all updates on a rollout.
    set_field_to_number(draft, "training.max_steps", "trainer.total_training_steps")
    _read_verl_warmup(draft, f"{ACTOR}.optim")
    _read_lora(draft, MODEL)


def _read_verl_sft(draft: ConfigDraft) -> None:
    """The fields of a training on answers."""
    draft.put("training.method", "sft", "model.partial_pretrain")
    draft.take("model", "model.partial_pretrain", made=str)
    set_field_to_number(draft, "training.learning_rate", "optim.lr")
    set_field_to_number(draft, "training.weight_decay", "optim.weight_decay")
    set_field_to_number(draft, "training.max_grad_norm", "optim.clip_grad")
    set_field_to_number(draft, "training.num_train_epochs", "trainer.total_epochs")
    set_field_to_number(draft, "training.max_steps", "trainer.total_training_steps")
    _read_verl_warmup(draft, "optim")
    _read_lora(draft, "model")


def _read_verl_warmup(draft: ConfigDraft, table: str) -> None:
    """The warm-up of verl: steps, or where these are below 0 (the default) or not set, a share of the run."""
    steps = draft.get(f"{table}.lr_warmup_steps")
    number = _number_of_value(steps)
    if number is not None and number >= 0:
        set_field_to_number(draft, "training.warmup_steps", f"{table}.lr_warmup_steps")
    elif steps is None or number is not None:
        set_field_to_number(draft, "training.warmup_ratio", f"{table}.lr_warmup_steps_ratio")


def _read_lora(draft: ConfigDraft, table: str) -> None:
    """The adapter of verl: its rank is 0 where all weights are trained."""
    rank = draft.get(f"{table}.lora_rank")
    if not isinstance(rank, int) or rank < 1:
        return
    alpha = draft.get(f"{table}.lora_alpha")
    draft.put(
        "training.lora",
        {
            "r": rank,
            "lora_alpha": alpha if isinstance(alpha, (int, float)) else 16,
            "target_modules": "all-linear",
        },
        f"{table}.lora_rank",
    )


def read_nemo_rl_config(document: LocatedDocument) -> Config:
    """The settings of NeMo RL in a file. Raises SpecError."""
    value = document.value if isinstance(document.value, Mapping) else {}
    draft = draft_with_dotted_names(document, "nemo-rl", NEMO_RL_RELEASE, {})
    method = next((name for name in ALGORITHMS_OF_NEMO_RL if name in value), "sft")
    draft.put("training.method", method, method)
    draft.take("model", "policy.model_name", made=str)
    set_field_to_number(draft, "training.learning_rate", "policy.optimizer.kwargs.lr")
    set_field_to_number(draft, "training.weight_decay", "policy.optimizer.kwargs.weight_decay")
    set_field_to_number(draft, "training.num_train_epochs", f"{method}.max_num_epochs")
    set_field_to_number(draft, "training.max_steps", f"{method}.max_num_steps")
    draft.put("training.warmup_steps", _warmup_of_nemo_rl(draft), "policy.scheduler")
    # `val:accuracy` is the accuracy of the validation.
    draft.take(
        "training.metric_for_best_model",
        "checkpointing.metric_name",
        made=lambda name: str(name).rpartition(":")[2],
    )
    draft.take("training.greater_is_better", "checkpointing.higher_is_better")
    table = "policy.dtensor_cfg.lora_cfg"
    if draft.get(f"{table}.enabled") is True:
        lora = {
            "r": draft.get(f"{table}.dim") or 8,
            "lora_alpha": draft.get(f"{table}.alpha") or 32,
        }
        draft.put("training.lora", lora, f"{table}.enabled")
    draft.notes.append("settings of NeMo RL: its rows are not read; name them beside it")
    if "defaults" in value:
        # `defaults: grpo_math_1B.yaml`: the file changes another one, which is not merged here.
        draft.own_keys = True
    return draft.make_config({*draft.values, *map(str, value)}, None, ())


def _warmup_of_nemo_rl(draft: ConfigDraft) -> float | None:
    """The steps of NeMo RL's warm-up: the first of its schedulers, if that raises the rate; None without one."""
    schedulers = draft.get("policy.scheduler")
    first = schedulers[0] if isinstance(schedulers, list) and schedulers else None
    if not isinstance(first, Mapping) or not str(first.get("name")).endswith("LinearLR"):
        return None
    options = first.get("kwargs")
    if not isinstance(options, Mapping):
        return None
    start, end = (_number_of_value(options.get(key, 1)) for key in ("start_factor", "end_factor"))
    if start is None or end is None or start >= end:
        return None
    return _number_of_value(options.get("total_iters"))


def set_field_to_number(draft: ConfigDraft, field: str, key: str) -> None:
    """Set a field to a number, which YAML reads as a text where it is written `1e-6`; an interpolation is none."""
    number = _number_of_value(draft.get(key))
    whole = number is not None and field.endswith("max_steps")
    draft.put(field, int(number) if whole and number is not None else number, key)


def _number_of_value(value: object) -> float | None:
    """The number that a setting holds, also as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def draft_with_dotted_names(
    document: LocatedDocument, stack: str, release: str, defaults: Mapping[str, Any]
) -> ConfigDraft:
    """A draft whose keys are the dotted names of all settings in the tables."""
    draft = draft_of_document(document, stack, release, defaults)
    raw = {str(key): value for key, value in document.value.items()}
    values: dict[str, Any] = {}
    where: dict[str, SettingLocation] = {}
    for way, value in flatten_tables_to_settings(raw):
        name = ".".join(way)
        values[name] = value
        where[name] = location_of_keys(document, way)
    return ConfigDraft(stack, release, draft.path, values, where, defaults, draft.text, raw)


def flatten_tables_to_settings(
    table: Mapping[Any, Any], way: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each setting of tables within tables, with the keys that lead to it.

    Args:
        table: of settings.
        way: the keys that lead to the table.
    """
    for key, value in table.items():
        here = (*way, str(key))
        if isinstance(value, Mapping) and len(here) < MAX_DEPTH:
            yield from flatten_tables_to_settings(value, here)
        else:
            yield here, value
