"""Reads results files of lm_eval and lighteval as the command that they were made by.

A results file records what the harness was started with. Written as that command again, one rule judges job files and
results alike. Only what the file says is written: an option that it does not record is not guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.input_limits import LOG, InputLimitError
from truetune.parsing.parse_json_within_limits import read_json

HARNESS_KEYS = frozenset(
    (
        "lm_eval_version",
        "chat_template",
        "chat_template_sha",
        "n-shot",
        "task_hashes",
        "fewshot_as_multiturn",
    )
)
"""Keys of which its results hold some, beside `results` and `config`"""
FIRST_KEY = re.compile(rb'\s*\{\s*"(results|config_general|groups|group_subtasks|versions)"\s*:')
"""How results begin: both harnesses write one of these keys first"""
HEAD_BYTES = 256
"""Bytes in which the first key has to stand: white space and the longest key are far shorter. More
would change nothing; with far fewer, indented results would not be recognised"""
NAMED = "results"
"""In the name of a results file that somebody wrote again, with its keys in another order"""
OF_LIGHTEVAL = "config_general"
"""The key under which lighteval records what it was started with"""
TEMPLATE_KEY = "chat_template"
"""The key that says which template was used; earlier releases write none, and nothing is known then"""
TEMPLATE_HASH_KEY = "chat_template_sha"
"""A hash of that template; null where none was used"""
TEMPLATE_NOT_RECORDED = "--truetune-template-not-recorded"
"""A word of ours, in the place of the option: the results do not say whether a template was used"""
MAX_TASKS = 2000
"""Tasks of one file whose examples are compared; MMLU has 57, BIG-bench 200"""


def is_lm_eval_or_lighteval_results(path: Path) -> bool:
    """Is it a results file of lm_eval or lighteval, by its keys? Only files that begin like one are
    read whole.
    """
    if path.suffix != ".json" or not path.is_file() or not _may_be_results(path):
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


def _may_be_results(path: Path) -> bool:
    """May a file be results, by its name or its first key? Results may be large, and most JSON
    files are none.
    """
    if NAMED in path.name:
        return True
    try:
        with path.open("rb") as stream:
            return FIRST_KEY.match(stream.read(HEAD_BYTES)) is not None
    except OSError:
        return False


def few_shot_count_by_task(path: Path) -> Mapping[str, int]:
    """The number of few-shot examples of each task that results record; empty if they record none
    or can't be read.
    """
    try:
        content = read_json(path, LOG)
    except (OSError, ValueError, InputLimitError):
        return {}
    if not isinstance(content, dict):
        return {}
    shots = (
        _few_shot_counts_of_lighteval(content)
        if OF_LIGHTEVAL in content
        else _few_shot_counts_of_lm_eval(content)
    )
    named = itertools.islice(shots, MAX_TASKS)
    return {name: count for name, count in named if type(count) is int}


def _few_shot_counts_of_lighteval(content: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    """Task and number of few-shot examples, from the keys of lighteval's results."""
    for key in content.get("results") or ():
        if "|" in str(key):
            yield _task_and_shots_of_lighteval_key(str(key))


def _few_shot_counts_of_lm_eval(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Task and number of few-shot examples: from `n-shot`, or from the tasks' own settings in
    releases that write none.
    """
    shots = content.get("n-shot")
    if isinstance(shots, dict):
        yield from ((str(name), count) for name, count in shots.items())
        return
    configs = content.get("configs")
    for name, settings in configs.items() if isinstance(configs, dict) else ():
        if isinstance(settings, dict):
            yield str(name), settings.get("num_fewshot")


def command_words_of_results(path: Path) -> tuple[str, ...]:
    """The words of the command that made the results, as far as they record it; empty for another
    JSON file.

    Raises DataError where the file can't be read.
    """
    try:
        content = read_json(path, LOG)
    except (OSError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    if isinstance(content, dict) and OF_LIGHTEVAL in content:
        return tuple(_command_words_of_lighteval_results(content))
    if not isinstance(content, dict) or "results" not in content:
        return ()
    return tuple(_command_words_of_lm_eval_results(content))


def _command_words_of_lm_eval_results(content: Mapping[str, Any]) -> Iterator[str]:
    """The words of the lm_eval command, as far as its results record it."""
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
    yield from _num_fewshot_option(content.get("n-shot"))
    limit = settings.get("limit")
    if isinstance(limit, int | float):
        yield from ("--limit", f"{limit:g}")
    yield from _chat_template_options(content)


def _chat_template_options(content: Mapping[str, Any]) -> Iterator[str]:
    """The options for the chat template, or the word that says that the results do not record it."""
    # Without a template the harness writes null here, so that only a text says that the option was given.
    if content.get(TEMPLATE_KEY) or content.get(TEMPLATE_HASH_KEY):
        yield "--apply_chat_template"
    elif TEMPLATE_KEY not in content and TEMPLATE_HASH_KEY not in content:
        yield TEMPLATE_NOT_RECORDED
    if content.get("fewshot_as_multiturn") is True:
        yield "--fewshot_as_multiturn"


def _num_fewshot_option(shots: Any) -> Iterator[str]:
    """The option for few-shot examples, with the largest number of all tasks."""
    counts = shots.values() if isinstance(shots, dict) else ()
    numbers = [count for count in counts if type(count) is int]
    if numbers:
        yield "--num_fewshot"
        yield str(max(numbers))


def _command_words_of_lighteval_results(content: Mapping[str, Any]) -> Iterator[str]:
    """The lighteval command that made the results, in the options that lm_eval has for the same."""
    general = content[OF_LIGHTEVAL]
    settings = general if isinstance(general, dict) else {}
    yield "lighteval"
    name = _model_name_of_lighteval(settings)
    if isinstance(name, str):
        yield from ("--model_args", f"pretrained={name}")
    yield from _task_options_of_lighteval(content.get("results") or ())
    limit = settings.get("max_samples")
    if isinstance(limit, int):
        yield from ("--limit", str(limit))


def _model_name_of_lighteval(settings: Mapping[str, Any]) -> object:
    """The model that the settings name, at the place where its release writes it."""
    config = settings.get("model_config")
    inner = config.get("model_name") if isinstance(config, dict) else None
    return settings.get("model_name", inner)


def _task_options_of_lighteval(keys: Iterable[str]) -> Iterator[str]:
    """The options for the tasks and their few-shot examples, by the keys of the results."""
    tasks = [_task_and_shots_of_lighteval_key(key) for key in keys if "|" in key]
    if tasks:
        yield from ("--tasks", ",".join(sorted({name for name, _ in tasks})))
    shots = [count for _, count in tasks if count is not None]
    if shots:
        yield from ("--num_fewshot", str(max(shots)))


def _task_and_shots_of_lighteval_key(key: str) -> tuple[str, int | None]:
    """Task name and number of few-shot examples of `leaderboard|gsm8k|5`; earlier releases add one
    more field.
    """
    parts = key.split("|")
    name = parts[1] if len(parts) > 2 else parts[0]
    count = parts[2] if len(parts) > 2 else parts[-1]
    return name, int(count) if count.isdigit() else None
