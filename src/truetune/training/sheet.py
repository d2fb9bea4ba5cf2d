"""Sheet: settings as a truetune.yaml that says what each of them means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from truetune.spec.run import RunSpec
from truetune.spec.training import Lora, Training
from truetune.training.contradictions import OF_PREFERENCES
from truetune.training.defaults import RANK
from truetune.training.recipe import recipe
from truetune.training.starting import MEANS, Start

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
        "training.lora.r", "training.lora.lora_alpha", "training.lora.target_modules", "training.lora.lora_dropout",
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
SET = frozenset((
    "model", "tokenizer", "data", "learn.what", "max_length", "encode.packing", "encode.overflow", "training.method",
    "training.output_dir", "training.lora.r", "training.lora.lora_alpha", "training.lora.target_modules",
    "training.dtype", "training.num_train_epochs", "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps", "training.learning_rate", "training.lr_scheduler_type",
    "training.warmup_steps", "training.beta", "rehearsal", "watch.prompts",
))  # fmt: skip
"""What every sheet sets; of the rest, what is not its default"""
EXAMPLES: dict[str, Any] = {
    "eval_data": "held-out.jsonl", "format": "messages", "map": {"answer": "output"}, "template": "chat.jinja",
    "template_kwargs": {"enable_thinking": False}, "training.adapter": "path/to/adapter", "training.load_in": 4,
    "training.attn_implementation": "sdpa", "training.use_liger_kernel": True, "training.max_steps": 1000,
    "training.reference": "path/to/model",
    "training.precompute_ref_log_probs": False, "training.disable_dropout": True, "training.desirable_weight": 1.0,
    "training.undesirable_weight": 1.0, "training.val_size": 0.02, "training.load_best_model_at_end": False,
    "training.metric_for_best_model": "eval_loss", "training.greater_is_better": False, "watch.every": 50,
    "watch.parser": "json", "watch.stop_on": "error", "trainer": {"report_to": "tensorboard"}, "select": ["TOK"],
    "ignore": ["duplicate-rows"], "training.lora.modules_to_save": ["lm_head"],
    "training.lora.trainable_token_indices": [32000],
}  # fmt: skip
"""Shown for what is not set and has no default"""
LOSSES = {"dpo": {"training.loss_type": "sigmoid"}, "kto": {"training.loss_type": "kto"}}
SHORT: Mapping[str, str] = {
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
    "training.method": "sft (answers), dpo or orpo (pairs), kto (answers judged good or bad)",
    "training.lora.r": "Rank: what the adapter can hold",
    "training.lora.lora_alpha": "Updates are scaled by lora_alpha / r",
    "training.lora.target_modules": "all-linear, names, name endings, or a pattern",
    "training.dtype": "What the weights are loaded as: float32, bfloat16, or auto (their own)",
    "training.gradient_checkpointing": "A quarter more time, much less memory",
    "training.max_steps": "Wins over the epochs",
    "training.val_size": (
        "Rows, or the share, that are held out of the data where there is no eval_data"
    ),
    "rehearsal": "Rehearse the run in miniature before the first step",
    "watch.every": "Steps between two looks; about five times a run where not set",
    "watch.budget": "The share of the run's time that looks may take",
    "watch.parser": (
        "How an answer is read: json, number, choice, regex:PATTERN, ... (docs/parsers.md)"
    ),
    "watch.stop_on": "A finding as severe as this ends the run: error, warning or info",
    "trainer": (
        "Arguments of TrainingArguments (sft), DPOConfig, ORPOConfig or KTOConfig, as they are"
    ),
}
"""For settings whose description is too long for a line"""
PATHS = ("model", "tokenizer", "data", "eval_data", "template")
SHARES = ("training.eval_steps", "training.save_steps", "training.logging_steps")
"""Shown as shares of the run"""
LORA = "training.lora."
BARE = RunSpec(
    training=Training(lora=Lora(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
)
"""Compared with, and shown where a run has none"""
COLUMN = 46
"""Where the comments begin"""


def written(start: Start, folder: Path, schema: str) -> str:
    """The file; `folder`: where it will stand, `schema`: what editors look up."""
    shown = _shown(start.asked)
    live = {path for path in shown if _is_live(start, path)}
    lines = [
        f"# yaml-language-server: $schema={schema}",
        f"# Settings of `truetune train`: {start.name}, {MEANS[start.name]}.",
        "# Written by `truetune init`. What is commented out has its default, or an example.",
    ]
    values, remarks = _values(start, live, folder), _remarks(start)
    for heading, paths in LAYOUT:
        lines += ["", f"# {heading}"]
        opened: set[str] = set()
        for path in filter(shown.__contains__, paths):
            lines += _heads(path, live, opened)
            lines.append(
                _line(
                    path, values[path], live, remarks.get(path) or SHORT.get(path) or _meaning(path)
                )
            )
    return "\n".join(lines) + "\n"


def _shown(spec: RunSpec) -> list[str]:
    """Without the settings of other methods"""
    method = spec.training.method
    every = (path for _, paths in LAYOUT for path in paths)
    return [
        path for path in every if method in OF_PREFERENCES.get(path.rpartition(".")[2], (method,))
    ]


def _is_live(start: Start, path: str) -> bool:
    """Every sheet sets it, the user or the recipe's name asks for it, or it has to be on."""
    if path.startswith(LORA) and start.asked.training.lora is None:
        return False
    if path == "training.gradient_checkpointing":
        return bool(_value(start.recipe.spec, path))
    return path in SET or _value(start.asked, path) != _value(BARE, path)


def _values(start: Start, live: set[str], folder: Path) -> dict[str, Any]:
    """What stands behind each name."""
    spec = start.recipe.spec
    shares = recipe(
        start.asked, rows=None, gpu=start.recipe.gpu, bf16=bool(spec.training.bf16)
    ).spec
    made = {}
    for path in _shown(spec):
        value = _value(shares if path in SHARES else spec, path)
        if path not in live and value in (None, (), {}):
            value = (EXAMPLES | LOSSES.get(start.name, {})).get(path, _value(BARE, path))
        made[path] = _beside(value, folder) if path in PATHS and path in live else value
    return made


def _value(spec: RunSpec, path: str) -> Any:
    found: Any = spec
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _remarks(start: Start) -> dict[str, str]:
    lengths = start.found.lengths
    if lengths is None:
        return {}
    here = f"here 95 of 100 have at most {lengths.most:,}, the longest {lengths.longest:,}"
    return {"max_length": f"Longest example in tokens; {here}"}


def _meaning(path: str) -> str:
    """The first sentence of a setting's description."""
    model: type[BaseModel] = RunSpec
    *parents, name = path.split(".")
    for parent in parents:
        model = _part(model, parent)
    said = " ".join((model.model_fields[name].description or "").split())
    first = said.partition(". ")[0]
    return first if first.endswith("...") else first.removesuffix(".")


def _part(model: type[BaseModel], name: str) -> type[BaseModel]:
    kinds = (
        model.model_fields[name].annotation,
        *getattr(model.model_fields[name].annotation, "__args__", ()),
    )
    return next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))


def _heads(path: str, live: Iterable[str], opened: set[str]) -> Iterator[str]:
    """The lines of the parts that a setting stands in, where they have not been written."""
    parents = path.split(".")[:-1]
    for depth in range(len(parents)):
        part = ".".join(parents[: depth + 1])
        if part not in opened:
            opened.add(part)
            dead = "" if any(other.startswith(f"{part}.") for other in live) else "# "
            yield f"{'  ' * depth}{dead}{parents[depth]}:"


def _line(path: str, value: Any, live: Iterable[str], meaning: str) -> str:
    depth = path.count(".")
    text = f"{path.rpartition('.')[2]}: {_yaml(value)}"
    if path not in live:
        part = path.rpartition(".")[0]
        inside = bool(part) and not any(other.startswith(f"{part}.") for other in live)
        depth, text = depth - inside, f"# {'  ' * inside}{text}"
    return f"{'  ' * depth + text:<{COLUMN}} # {meaning}"


def _yaml(value: Any) -> str:
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 and isinstance(value[0], str) else list(value)
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _beside(value: Any, folder: Path) -> Any:
    """Relative paths as they stand from the file's folder."""
    if isinstance(value, tuple):
        return tuple(_beside(item, folder) for item in value)
    path = Path(value)
    if (
        "://" in value
        or path.is_absolute()
        or not (path.exists() or any(sign in value for sign in "*?["))
    ):
        return value
    return Path(os.path.relpath(path, folder)).as_posix()
