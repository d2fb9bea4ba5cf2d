"""Suggests the command or option that a word of the command line may mean, where other tools call
it otherwise.

Other tools call the same things otherwise: `inspect`, `preflight`, `--num-samples`. A table says what such words mean
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

OTHER_COMMAND_NAMES: Mapping[str, tuple[str, ...]] = {
    "show": ("inspect", "print", "cat", "peek", "head", "tokens", "render", "preview"),
    "check": (
        "validate",
        "verify",
        "preflight",
        "scan",
        "analyse-data",
        "dataset",
        "data",
        "dedup",
        "stats",
        "test",
    ),
    "rehearse": (
        "dry-run",
        "dryrun",
        "smoke",
        "smoke-test",
        "simulate",
        "try",
        "sanity",
        "sanity-check",
        "overfit",
    ),
    "encode": ("tokenize", "tokenise", "preprocess", "prepare", "pack", "pretokenize"),
    "sample": (
        "generate",
        "chat",
        "infer",
        "inference",
        "predict",
        "ask",
        "complete",
        "answers",
        "eyeball",
    ),
    "evaluate": ("eval", "benchmark", "bench", "metrics", "perplexity", "ppl", "lm-eval"),
    "movement": ("diff", "compare", "delta", "weights", "changed"),
    "export": ("convert", "quantize", "quantise", "gguf", "save"),
    "plan": ("memory", "vram", "estimate", "fit", "gpu", "calculator", "budget"),
    "diagnose": (
        "debug",
        "log",
        "logs",
        "monitor",
        "analyze",
        "analyse",
        "why",
        "curves",
        "loss",
        "traceback",
    ),
    "train": ("finetune", "fine-tune", "sft", "dpo", "lora", "learn", "start"),
    "view": ("ui", "browse", "dashboard", "serve", "gui", "web", "open"),
    "rules": ("ls", "list", "checks", "catalogue"),
    "explain": ("why-rule", "describe", "man", "search", "find", "doc", "docs", "guide"),
    "init": ("config", "new", "create", "setup", "wizard", "scaffold"),
    "doctor": ("env", "info", "version", "versions", "environment", "system", "collect-env"),
    "run": ("audit", "launch", "exec", "wrap", "trace", "watch", "hook"),
    "fix": ("repair", "clean", "format", "autofix", "mend", "correct"),
    "merge": ("fuse", "unload", "merge-lora", "combine"),
    "serve-check": ("serve-test", "check-server", "endpoint", "server"),
    "ladder": ("stages", "fidelity", "adapter-check"),
    "report": ("html", "page", "summary", "export-html"),
}
"""What there is -> what other tools call it"""

COMMAND_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    name: tuple(other.replace("-", " ") for other in others)
    for name, others in OTHER_COMMAND_NAMES.items()
}
"""The same as a search reads it"""

OPTION_WORDS: Mapping[str, tuple[str, ...]] = {
    "--prompts": (
        "num",
        "samples",
        "sample",
        "count",
        "examples",
        "rows",
        "number",
        "limit",
        "n",
        "k",
        "prompts",
        "questions",
    ),
    "--rows": (
        "num",
        "samples",
        "sample",
        "count",
        "examples",
        "rows",
        "number",
        "limit",
        "n",
        "k",
        "subset",
        "head",
        "first",
    ),
    "--limit": (
        "max",
        "num",
        "samples",
        "sample",
        "count",
        "examples",
        "rows",
        "number",
        "limit",
        "n",
        "k",
        "subset",
        "head",
        "first",
    ),
    "--batches": ("num", "batch", "batches", "steps", "step", "iterations", "samples", "count"),
    "--row": ("index", "idx", "row", "line", "id", "example", "sample", "num", "samples", "n"),
    "--cases": (
        "all",
        "places",
        "details",
        "max",
        "show",
        "num",
        "samples",
        "examples",
        "rows",
        "count",
    ),
    "--max-length": (
        "seq",
        "sequence",
        "cutoff",
        "context",
        "window",
        "len",
        "length",
        "ctx",
        "block",
    ),
    "--max-new-tokens": ("tokens", "new", "generate", "length", "output"),
    "--tokenizer": ("tok", "tokenizer", "tokeniser", "vocab", "model", "name", "path"),
    "--model": ("model", "checkpoint", "ckpt", "pretrained", "name", "path", "weights"),
    "--data": ("dataset", "data", "train", "file", "input", "jsonl", "questions"),
    "--eval-data": ("val", "validation", "eval", "test", "heldout", "dev"),
    "--base": ("base", "reference", "original", "pretrained"),
    "--against": ("compare", "baseline", "versus", "vs", "other", "base", "reference"),
    "--gpu": ("vram", "memory", "mem", "gb", "device", "card"),
    "--gpus": ("devices", "nproc", "world", "size", "num", "processes"),
    "--template": ("chat", "jinja", "template", "prompt"),
    "--output": ("out", "dest", "destination", "save", "file", "dir", "outdir", "report"),
    "--html": ("page", "web", "browser", "html", "report"),
    "--save": ("save", "out", "output", "write"),
    "--fail-on": ("strict", "fail", "error", "exit", "severity", "level", "threshold"),
    "--ignore": ("skip", "exclude", "disable", "without", "no", "suppress"),
    "--select": ("only", "rule", "rules", "include", "enable", "check"),
    "--verbose": ("details", "full", "debug", "all", "long", "explain"),
    "--quiet": ("silent", "brief", "short"),
    "--map": ("columns", "column", "field", "fields", "key", "keys", "text", "rename"),
    "--learn": (
        "mask",
        "assistant",
        "completion",
        "responses",
        "response",
        "only",
        "loss",
        "supervise",
        "train",
    ),
    "--json": ("json", "machine", "format"),
    "--jobs": ("workers", "proc", "num", "threads", "cpus", "processes", "parallel", "j"),
    "--seed": ("random", "seed", "state", "rng"),
    "--temperature": ("temp", "temperature"),
    "--dtype": ("precision", "bf16", "fp16", "half", "torch"),
    "--allow-unjudged": ("lenient", "allow", "force"),
    "--trainer": ("stack", "framework", "library", "trainer", "backend"),
    "--dry-run": ("dry", "test", "preview", "simulate"),
    "--fix": ("fix", "apply", "write", "inplace", "autofix"),
}
"""What there is -> words in the names of options that mean it"""


WEAK_WORDS = frozenset(("max", "min", "no", "on", "new", "of"))
"""Words in names of options that say nothing alone"""
MIN_SHARE = 0.5
"""Of the words of an unknown option: `--num-samples` means `--prompts` by both its words, `--batch-samples` by one.
Below a half the hint would be a guess (chosen)."""


def suggest_command_of_word(word: str) -> str | None:
    """The command of ours that other tools call by this word; None where there is none."""
    word = word.lower().replace("_", "-").lstrip("-")
    for name, others in OTHER_COMMAND_NAMES.items():
        if word in others:
            return name
    return None


def suggest_option_of_word(word: str, command: click.Command) -> str | None:
    """The option of this command that the word means; None where no option shares a word with it."""
    share, name = best_option_with_shared_words(word, command)
    return name if share >= MIN_SHARE else None


def best_option_with_shared_words(word: str, command: click.Command) -> tuple[float, str]:
    """The option of this command that shares most words with this one, and the share of the words; (0, "") if none
    does."""
    asked = set(re.split(r"[-_.]+", word.lower().strip("-")))
    best_share, best_name = 0.0, ""
    for param in command.params:
        for name in param.opts:
            if not name.startswith("--"):
                continue
            own = set(name.strip("-").split("-"))
            synonyms = set(OPTION_WORDS.get(name, ()))
            matched = len(asked & (own | synonyms))
            # A word of the option's own name counts more than a synonym.
            exact = len(asked & own - WEAK_WORDS)
            share = (matched + 0.5 * exact) / len(asked)
            if share > best_share:
                best_share, best_name = share, name
    return best_share, best_name


def other_commands_with_option(option: str, group: click.Group) -> list[str]:
    """Other commands that have an option of exactly this name."""
    return [
        name
        for name, command in group.commands.items()
        if any(option in param.opts for param in command.params)
    ]
