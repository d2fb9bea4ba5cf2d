"""The results that lm_eval writes, as the command that made them.

A results file records what the harness was started with. Written as that command again, one rule judges job files and
results alike. Only what the file says is written: an option that it does not record is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.json_reader import read_json
from truetune.parsing.limits import LOG, InputLimitError

HARNESS_KEYS = frozenset(
    ("lm_eval_version", "chat_template", "n-shot", "task_hashes", "fewshot_as_multiturn")
)
"""Keys of which its results hold some, beside `results` and `config`"""
TEMPLATE_KEY = "chat_template"
"""The key that says which template was used; earlier releases write none, and nothing is known then"""


def is_harness_results(path: Path) -> bool:
    """Is it a results file of lm_eval? By its name first: others are not opened."""
    # Results may be large: a name that can't be one saves reading them.
    if not path.name.startswith("results") or path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = read_json(path, LOG)
    # Not one of its files, or none that can be read: whoever asked looks for something else in it.
    except (OSError, ValueError, InputLimitError):
        return False
    return (
        isinstance(content, dict)
        and {"results", "config"} <= content.keys()
        and not HARNESS_KEYS.isdisjoint(content)
    )


def harness_words(path: Path) -> tuple[str, ...]:
    """The words of the command that the results were made by; empty where they do not say which template was used.

    Raises DataError where the file can't be read.
    """
    try:
        content = read_json(path, LOG)
    except (OSError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
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
