"""Writes settings as a truetune.yaml that says what each of them means.

What is set is written, what is not stands as a comment with an example: the file is the manual of its own settings. The
meaning comes from the fields' descriptions, so that it cannot differ from what `truetune` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Lora, Training
from truetune.training.default_settings import LORA_RANK
from truetune.training.propose_settings import RECIPE_MEANINGS, StartingSettings
from truetune.training.setting_conflicts import METHODS_OF_SETTINGS
from truetune.training.training_recipe import make_recipe

LAYOUT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Model and data", (
        "model", "tokenizer", "data", "eval_data", "format", "map", "template", "template_kwargs",
    )),
    ("What is learned, and how rows become ids", (
        "learn.what", "learn.reasoning", "learn.tool_calls", "history", "max_length", "encode.packing",
        "encode.overflow", "encode.content_specials", "encode.on_error", "encode.loss_weights",
    )),
    ("Training", (
        "training.method", "training.output_dir",
        "training.lora.r", "training.lora.lora_alpha", "training.lora.target_modules",
        "training.lora.target_parameters",
        "training.lora.lora_dropout",
        "training.lora.use_dora", "training.lora.use_rslora", "training.lora.init_lora_weights",
        "training.lora.modules_to_save", "training.lora.trainable_token_indices", "training.adapter",
        "training.load_in", "training.dtype", "training.bf16", "training.fp16", "training.gradient_checkpointing",
        "training.attn_implementation", "training.use_liger_kernel",
        "training.num_train_epochs", "training.max_steps", "training.per_device_train_batch_size",
        "training.gradient_accumulation_steps", "training.per_device_eval_batch_size", "training.devices",
        "training.learning_rate", "training.lr_scheduler_type", "training.warmup_steps", "training.optim",
        "training.weight_decay", "training.max_grad_norm",
        "training.beta", "training.loss_type", "training.reference", "training.precompute_ref_log_probs",
        "training.disable_dropout", "training.desirable_weight", "training.undesirable_weight",
        "training.rewards", "training.reward_weights", "training.num_generations", "training.max_completion_length",
        "training.val_size", "training.eval_strategy", "training.eval_steps", "training.save_strategy",
        "training.save_steps", "training.save_total_limit", "training.logging_steps",
        "training.load_best_model_at_end", "training.metric_for_best_model", "training.greater_is_better",
    )),
    ("Before the first step, and meanwhile", (
        "rehearsal", "watch.prompts", "watch.every", "watch.max_new_tokens", "watch.budget", "watch.parser",
        "watch.stop_on",
    )),
    ("Arguments of the trainer that have no name here; rules of `truetune check`", (
        "trainer", "select", "ignore", "fail_on", "allow_unjudged",
    )),
)  # fmt: skip
ALWAYS_SET = frozenset((
    "model", "tokenizer", "data", "learn.what", "max_length", "encode.packing", "encode.overflow", "training.method",
    "training.output_dir", "training.lora.r", "training.lora.lora_alpha", "training.lora.target_modules",
    "training.dtype", "training.num_train_epochs", "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps", "training.learning_rate", "training.lr_scheduler_type",
    "training.warmup_steps", "training.beta", "training.rewards", "training.num_generations",
    "training.max_completion_length", "rehearsal", "watch.prompts",
))  # fmt: skip
"""What every sheet sets; of the rest, what is not its default"""
EXAMPLES: dict[str, Any] = {
    "eval_data": "held-out.jsonl", "format": "messages", "map": {"answer": "output"}, "template": "chat.jinja",
    "template_kwargs": {"enable_thinking": False}, "training.adapter": "path/to/adapter", "training.load_in": 4,
    "training.attn_implementation": "sdpa", "training.use_liger_kernel": True, "training.max_steps": 1000,
    "training.reference": "path/to/model",
    "training.precompute_ref_log_probs": False, "training.disable_dropout": True, "training.desirable_weight": 1.0,
    "training.undesirable_weight": 1.0, "training.reward_weights": [1.0], "training.val_size": 0.02,
    "training.load_best_model_at_end": False,
    "training.metric_for_best_model": "eval_loss", "training.greater_is_better": False, "watch.every": 50,
    "watch.parser": "json", "watch.stop_on": "error", "trainer": {"report_to": "tensorboard"}, "select": ["TOK"],
    "ignore": ["duplicate-rows"], "training.lora.modules_to_save": ["lm_head"],
    "training.lora.target_parameters": ["mlp.experts.down_proj"],
    # The first id behind Llama 2's vocabulary: an example of the form, to be replaced.
    "training.lora.trainable_token_indices": [32000],
}  # fmt: skip
"""Shown for what is not set and has no default"""
EXAMPLE_LOSSES = {
    "dpo": {"training.loss_type": "sigmoid"},
    "kto": {"training.loss_type": "kto"},
    "grpo": {"training.loss_type": "dapo"},
}
SHORT_MEANINGS: Mapping[str, str] = {
    "model": "Folder of config.json and the weights, or a name in the local hub cache",
    "tokenizer": "Folder of the tokenizer; most often the model's",
    "format": (
        "messages, sharegpt, alpaca, prompt-completion, text, preference, kto; found by the columns"
    ),
    "map": "Columns of another name: what truetune calls it: what the file calls it",
    "template": "One of the tokenizer's templates by name, or a .jinja file",
    "template_kwargs": "Passed to the template, as serving does",
    "learn.what": (
        "assistant: every assistant turn; last: the last one; completion; all: every token"
    ),
    "learn.reasoning": "Supervise reasoning",
    "history": (
        "Where the template rewrites earlier turns: one example a turn (as-served), or one in all"
        " (single)"
    ),
    "encode.packing": "best-fit: several examples in a row, which attention keeps apart; or none",
    "encode.overflow": "Examples that are longer: drop (counted), error, truncate-prompt or split",
    "encode.content_specials": "Control tokens inside contents: error, keep, or text",
    "encode.on_error": "Rows that cannot be read or rendered: error, or skip",
    "encode.loss_weights": "Weigh tokens by the `weight` of their message",
    "training.method": (
        "sft (answers), dpo or orpo (pairs), kto (answers judged good or bad), grpo (rewards)"
    ),
    "training.lora.r": "Rank: what the adapter can hold",
    "training.lora.lora_alpha": "Updates are scaled by lora_alpha / r",
    "training.lora.target_modules": "all-linear, names, name endings, or a pattern",
    "training.lora.target_parameters": "Parameters beside them, as those of fused experts",
    "training.dtype": "What the weights are loaded as: float32, bfloat16, or auto (their own)",
    "training.gradient_checkpointing": "A quarter more time, much less memory",
    "training.max_steps": "Wins over the epochs",
    "training.val_size": (
        "Rows, or the share, that are held out of the data where there is no eval_data"
    ),
    "rehearsal": "Rehearse the run in miniature before the first step",
    "watch.every": "Steps between two sampling passes; about five times a run where not set",
    "watch.budget": "The share of the run's time that sampling passes may take",
    "watch.parser": (
        "How an answer is read: json, number, choice, regex:PATTERN, ... (docs/parsers.md)"
    ),
    "watch.stop_on": "A finding as severe as this ends the run: error, warning or info",
    "trainer": (
        "Arguments of TrainingArguments (sft), DPOConfig, ORPOConfig, KTOConfig or GRPOConfig, as they are"
    ),
}
"""For settings whose description is too long for a line"""
PATH_SETTINGS = ("model", "tokenizer", "data", "eval_data", "template")
SHARE_SETTINGS = ("training.eval_steps", "training.save_steps", "training.logging_steps")
"""Shown as shares of the run"""
LORA_PREFIX = "training.lora."
BARE_SPEC = RunSpec(
    training=Training(lora=Lora(r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules="all-linear"))
)
"""Compared with, and shown where a run has none"""
# Chosen by eye: most settings end before it, with their values.
COLUMN = 46
"""Where the comments begin"""


def render_settings_yaml(start: StartingSettings, folder: Path, schema: str) -> str:
    """The text of a truetune.yaml. `folder`: where it will be; `schema`: the address of the schema
    for editors.
    """
    settings = _setting_names_without_other_methods(start.settings)
    live = {path for path in settings if _is_written_live_not_as_comment(start, path)}
    lines = [
        f"# yaml-language-server: $schema={schema}",
        f"# Settings of `truetune train`: {start.name}, {RECIPE_MEANINGS[start.name]}.",
        "# Written by `truetune init`. What is commented out has its default, or an example.",
    ]
    values, remarks = (
        _value_to_write_for_each_setting(start, live, folder),
        _setting_meanings_by_found_data(start),
    )
    for heading, paths in LAYOUT:
        lines += ["", f"# {heading}"]
        opened: set[str] = set()
        for path in filter(settings.__contains__, paths):
            lines += _unwritten_section_heads(path, live, opened)
            lines.append(
                _setting_yaml_line(
                    path,
                    values[path],
                    live,
                    remarks.get(path)
                    or SHORT_MEANINGS.get(path)
                    or _first_sentence_of_setting_description(path),
                )
            )
    return "\n".join(lines) + "\n"


def _setting_names_without_other_methods(spec: RunSpec) -> list[str]:
    """The dotted names of the settings, without those of other methods."""
    method = spec.training.method
    every = (path for _, paths in LAYOUT for path in paths)
    return [
        path
        for path in every
        if method in METHODS_OF_SETTINGS.get(path.rpartition(".")[2], (method,))
    ]


def _is_written_live_not_as_comment(start: StartingSettings, path: str) -> bool:
    """Is a setting written with its value (and not as a comment)? It is where every file sets it,
    the user or the recipe's name asks for it, or it has to be on.
    """
    if path.startswith(LORA_PREFIX) and start.settings.training.lora is None:
        return False
    # Shown only where it is on: `false` would look like a decision on a machine that has no need
    # for it.
    if path == "training.gradient_checkpointing":
        return bool(_setting_value(start.recipe.spec, path))
    return path in ALWAYS_SET or _setting_value(start.settings, path) != _setting_value(
        BARE_SPEC, path
    )


def _value_to_write_for_each_setting(
    start: StartingSettings, live: set[str], folder: Path
) -> dict[str, Any]:
    """The value that is written for each setting."""
    spec = start.recipe.spec
    # Without the number of rows, intervals come out as shares of the run. They stay right where the
    # data grows.
    shares = make_recipe(
        start.settings, rows=None, gpu=start.recipe.gpu, bf16=bool(spec.training.bf16)
    ).spec
    values = {}
    for path in _setting_names_without_other_methods(spec):
        value = _setting_value(shares if path in SHARE_SETTINGS else spec, path)
        if path not in live and value in (None, (), {}):
            value = (EXAMPLES | EXAMPLE_LOSSES.get(start.name, {})).get(
                path, _setting_value(BARE_SPEC, path)
            )
        values[path] = (
            _paths_relative_to_file(value, folder)
            if path in PATH_SETTINGS and path in live
            else value
        )
    return values


def _setting_value(spec: RunSpec, path: str) -> Any:
    """The value behind a dotted name; None where a part on the way is not set."""
    value: Any = spec
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _setting_meanings_by_found_data(start: StartingSettings) -> dict[str, str]:
    """Meanings of settings that tell of the data that was found."""
    lengths = start.survey.lengths
    if lengths is None:
        return {}
    here = f"here 95 of 100 have at most {lengths.most:,}, the longest {lengths.longest:,}"
    return {"max_length": f"Longest example in tokens; {here}"}


def _first_sentence_of_setting_description(path: str) -> str:
    """The first sentence of a setting's description."""
    model: type[BaseModel] = RunSpec
    *parents, name = path.split(".")
    for parent in parents:
        model = _pydantic_model_of_field(model, parent)
    description = " ".join((model.model_fields[name].description or "").split())
    first = description.partition(". ")[0]
    return first if first.endswith("...") else first.removesuffix(".")


def _pydantic_model_of_field(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The pydantic model of a field that is one, also where it is optional; else None."""
    kinds = (
        model.model_fields[name].annotation,
        *getattr(model.model_fields[name].annotation, "__args__", ()),
    )
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


def _unwritten_section_heads(path: str, live: Iterable[str], opened: set[str]) -> Iterator[str]:
    """The lines of the parts that a setting stands in, where they have not been written."""
    parents = path.split(".")[:-1]
    for depth in range(len(parents)):
        part = ".".join(parents[: depth + 1])
        if part not in opened:
            opened.add(part)
            dead = "" if any(other.startswith(f"{part}.") for other in live) else "# "
            yield f"{'  ' * depth}{dead}{parents[depth]}:"


def _setting_yaml_line(path: str, value: Any, live: Iterable[str], meaning: str) -> str:
    """The line of one setting with its meaning; a comment where it is not live."""
    depth = path.count(".")
    text = f"{path.rpartition('.')[2]}: {_yaml_value_on_one_line(value)}"
    if path not in live:
        part = path.rpartition(".")[0]
        inside = bool(part) and not any(other.startswith(f"{part}.") for other in live)
        depth, text = depth - inside, f"# {'  ' * inside}{text}"
    return f"{'  ' * depth + text:<{COLUMN}} # {meaning}"


def _yaml_value_on_one_line(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 and isinstance(value[0], str) else list(value)
    # yaml knows when a text needs quotes (`no`, `1e-8`, a colon); one line each, for the comment
    # stands behind it.
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _paths_relative_to_file(value: Any, folder: Path) -> Any:
    """Relative paths as they stand from the file's folder."""
    if isinstance(value, tuple):
        return tuple(_paths_relative_to_file(item, folder) for item in value)
    path = Path(value)
    if (
        # A hub's or a server's address has no folder; a name that is no path here is a model of the
        # hub.
        "://" in value
        or path.is_absolute()
        or not (path.exists() or any(sign in value for sign in "*?["))
    ):
        return value
    return Path(os.path.relpath(path, folder)).as_posix()
