"""Examples of rules on code: scripts, job files, Modelfiles, and runs that a script sets up.

A block is the file itself. Comments `# NAME: CONTENT` in it stand for files beside it, and are
taken out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.report.rule_pages.example_files import Example, ExampleFile, json_file, jsonl_file
from truetune.report.rule_pages.examples_of_settings import notes_on_ages
from truetune.report.rule_pages.generated_rows import generate_rows_with_some_long_texts

SCRIPT = "train.py"
JOB = "job.sbatch"
MODELFILE = "Modelfile"
_FILE_BESIDE = re.compile(r"^# (?P<name>\S+\.(?:json|sh|py|csv)): (?P<content>.*)\n", re.M)
_ROWS_BESIDE = re.compile(r"^# (?P<name>\S+\.jsonl): (?P<content>\{.*\})\n", re.M)
_AGES = re.compile(r"^# ages: (?P<content>\{.*\})\n", re.M)
_TOKENIZER_BESIDE = re.compile(r"^# (?P<name>\S+): tokenizer\n", re.M)
NAMES_OF_RUNS: Mapping[str, str] = {
    "rows": "`rows` are eight chats",
    "chats": "`chats(n)` makes n chats",
    "pairs": "`pairs()` makes eight preference pairs",
    "model": "`model` is a small Llama",
    "tokenizer": "`tokenizer` is its tokenizer",
    "encoded": "`encoded(rows)` gives their token ids, with labels on the answers alone",
    "arguments": "`arguments(...)` makes the trainer's arguments",
    "sft": "`sft(rows)` makes TRL's `SFTTrainer` with a small model",
    "dpo": "`dpo(pairs)` makes TRL's `DPOTrainer` with a small model",
    "grpo": "`grpo(...)` makes TRL's `GRPOTrainer`, or the class it is given, with a small model and a reward",
    "online_dpo": "`online_dpo(...)` makes TRL's `OnlineDPOTrainer`, or the class it is given, in the same way",
    "tiny_model": "`tiny_model(...)` is the small model",
    "reward_model": "`reward_model()` makes a small model that scores a text",
    "length_reward": "`length_reward` is a reward function",
    "server": "`server(...)` starts a server whose URL it gives",
    "given": "`given` are the rows before they are prepared",
    "ranks": "`ranks` are the loaders of several processes",
    "run": "`run` is what truetune examines",
}
"""What the names of such an example are that it does not define itself"""


@dataclass(frozen=True, slots=True)
class FilesOfScript:
    """A script of an example, without the comments that stand for other files, and these files."""

    script: str
    texts: Mapping[str, str]
    """The files beside it, by name"""
    rows: Mapping[str, list[Any]]
    """Files of rows, by name"""
    ages: Mapping[str, int]
    """How old files are, in seconds"""


def files_of_script(block: str) -> FilesOfScript:
    """Take an example's script and the files beside it apart.

    Args:
        block: Python with comments `# adapter/adapter_config.json: {...}`, `# run.sh: COMMAND` and
            `# other.py: CODE` for such files, `# rows.jsonl: {"rows": n, "words": w, "long": m,
            "long_words": v}` for n rows with a text of w words, m of them with v, and
            `# ages: {FILE: SECONDS}`.
    """
    texts = {
        match["name"]: _lines_of_table(match["name"], match["content"])
        for match in _FILE_BESIDE.finditer(block)
    }
    rows = {
        match["name"]: generate_rows_with_some_long_texts(**_parse_settings(match["content"]))
        for match in _ROWS_BESIDE.finditer(block)
    }
    ages: dict[str, int] = {}
    for match in _AGES.finditer(block):
        ages |= _parse_settings(match["content"])
    script = block
    for pattern in (_FILE_BESIDE, _ROWS_BESIDE, _AGES):
        script = pattern.sub("", script)
    return FilesOfScript(script.lstrip("\n"), texts, rows, ages)


def _lines_of_table(name: str, content: str) -> str:
    """What a comment says of a file beside: a table's lines are divided by ` | ` there."""
    return content.replace(" | ", "\n") if name.endswith(".csv") else content


def example_of_script(block: str) -> Example:
    """An example of a rule on Python sources."""
    found = files_of_script(block)
    files = [ExampleFile(SCRIPT, found.script)]
    files += [ExampleFile(name, f"{text}\n") for name, text in found.texts.items()]
    files += [jsonl_file(name, rows) for name, rows in found.rows.items()]
    return Example(tuple(files), tuple(notes_on_ages(found.ages)))


def example_of_commands(block: str) -> Example:
    """An example of a rule on shell scripts and job files; YAML with `files` holds several."""
    if not block.startswith("files:"):
        return Example((ExampleFile(JOB, block),))
    value: Any = parse_yaml(block).value
    files = [
        ExampleFile(name, content) if isinstance(content, str) else json_file(name, content)
        for name, content in value["files"].items()
    ]
    return Example(tuple(files))


def example_of_modelfile(block: str) -> Example:
    """An example of a rule on Ollama's Modelfile."""
    files = [
        ExampleFile(match["name"], match["content"] + "\n")
        for match in _FILE_BESIDE.finditer(block)
    ]
    text = _TOKENIZER_BESIDE.sub("", _FILE_BESIDE.sub("", block))
    notes = [
        f"`{folder}` holds a tokenizer that ends turns with `<|im_end|>`."
        for folder in tokenizers_beside(block)
    ]
    return Example((ExampleFile(MODELFILE, text.lstrip("\n")), *files), tuple(notes))


def tokenizers_beside(block: str) -> list[str]:
    """Folders that comments `# FOLDER: tokenizer` put a tokenizer into."""
    return [match["name"] for match in _TOKENIZER_BESIDE.finditer(block)]


def example_of_run(block: str) -> Example:
    """An example of a rule on a run: the script that sets the run up, and what its names are."""
    notes = [
        f"{text}."
        for name, text in NAMES_OF_RUNS.items()
        if re.search(rf"(?<![.\w]){name}\b(?!=)", block)
        and not re.search(rf"^def {name}\b|^import {name}\b", block, re.M)
    ]
    return Example((ExampleFile(SCRIPT, block),), tuple(notes))


def _parse_settings(text: str) -> Any:
    return parse_json(text, SETTINGS)
