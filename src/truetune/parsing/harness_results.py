"""The results that lm_eval writes, as the command that made them.

A results file records what the harness was started with. Written as that command again, one rule judges job files and
results alike. Only what the file says is written: an option that it does not record is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.input_limits import LOG, InputLimitError
from truetune.parsing.json_reader import read_json

HARNESS_KEYS = frozenset(
    ("lm_eval_version", "chat_template", "n-shot", "task_hashes", "fewshot_as_multiturn")
)
"""Keys of which its results hold some, beside `results` and `config`"""
FOLDERS = ("results", "evals", "eval_results", "evaluation")
"""Folders in which results files may have any name"""
OF_LIGHTEVAL = "config_general"
"""The key under which lighteval records what it was started with"""
TEMPLATE_KEY = "chat_template"
"""The key that says which template was used; earlier releases write none, and nothing is known then"""


def is_harness_results(path: Path) -> bool:
    """Is it a results file of lm_eval or lighteval? By its name first, or that of its folder: others are not opened."""
    # Results may be large: a name that can't be one saves reading them.
    if path.suffix != ".json" or not path.is_file():
        return False
    if "results" not in path.name and path.absolute().parent.name not in FOLDERS:
        return False
    try:
        content = read_json(path, LOG)
    # Not one of its files, or none that can be read: whoever asked looks for something else in it.
    except (OSError, ValueError, InputLimitError):
        return False
    if not isinstance(content, dict) or "results" not in content:
        return False
    is_of_lm_eval = "config" in content and not HARNESS_KEYS.isdisjoint(content)
    return OF_LIGHTEVAL in content or is_of_lm_eval


def harness_words(path: Path) -> tuple[str, ...]:
    """The words of the command that the results were made by; empty where they do not say which template was used.

    Raises DataError where the file can't be read.
    """
    try:
        content = read_json(path, LOG)
    except (OSError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    if isinstance(content, dict) and OF_LIGHTEVAL in content:
        return tuple(_words_of_lighteval(content))
    if not isinstance(content, dict) or TEMPLATE_KEY not in content:
        return ()
    return tuple(_command_words(content))


def _command_words(content: Mapping[str, Any]) -> Iterator[str]:
    """The command, word by word, as far as the results record it."""
    config, tasks = content.get("config"), content.get("results")
    settings = config if isinstance(config, dict) else {}
    yield "lm_eval"
    for name in ("model", "model_args"):
        value = settings.get(name)
        # Some releases write the arguments as an object, others as the text of the command.
        if isinstance(value, dict):
            value = ",".join(f"{key}={setting}" for key, setting in value.items())
        if isinstance(value, str):
            yield f"--{name}"
            yield value
    if isinstance(tasks, dict):
        yield "--tasks"
        yield ",".join(map(str, tasks))
    yield from _fewshot_words(content.get("n-shot"))
    limit = settings.get("limit")
    if isinstance(limit, int | float):
        yield from ("--limit", f"{limit:g}")
    # Without a template the harness writes null here, so that only a text says that the option was given.
    if content.get(TEMPLATE_KEY):
        yield "--apply_chat_template"
    if content.get("fewshot_as_multiturn") is True:
        yield "--fewshot_as_multiturn"


def _fewshot_words(shots: Any) -> Iterator[str]:
    """The option for examples before the question: tasks may have their own numbers, and the largest one tells."""
    counts = shots.values() if isinstance(shots, dict) else ()
    numbers = [count for count in counts if type(count) is int]
    if numbers:
        yield "--num_fewshot"
        yield str(max(numbers))


def _words_of_lighteval(content: Mapping[str, Any]) -> Iterator[str]:
    """The words of the command behind results of lighteval, with the options that lm_eval has for the same."""
    general, results = content[OF_LIGHTEVAL], content.get("results")
    settings = general if isinstance(general, dict) else {}
    yield "lighteval"
    config = settings.get("model_config")
    inner = config.get("model_name") if isinstance(config, dict) else None
    name = settings.get("model_name", inner)
    if isinstance(name, str):
        yield from ("--model_args", f"pretrained={name}")
    tasks = [_lighteval_task(one) for one in results or () if "|" in one]
    if tasks:
        yield from ("--tasks", ",".join(sorted({name for name, _ in tasks})))
    shots = [count for _, count in tasks if count is not None]
    if shots:
        yield from ("--num_fewshot", str(max(shots)))
    limit = settings.get("max_samples")
    if isinstance(limit, int):
        yield from ("--limit", str(limit))


def _lighteval_task(key: str) -> tuple[str, int | None]:
    """The task and the few-shot number of `leaderboard|gsm8k|5`; earlier releases wrote one more field behind it."""
    parts = key.split("|")
    name = parts[1] if len(parts) > 2 else parts[0]
    count = parts[2] if len(parts) > 2 else parts[-1]
    return name, int(count) if count.isdigit() else None
