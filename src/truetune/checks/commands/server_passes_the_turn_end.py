"""A chat server does not stop at the token that ends a turn.

## What it does
Reads the files in the folder that a vLLM, SGLang or TGI command serves: the token that the chat template writes at the
end of a turn, the ids at which generation_config.json stops (or config.json, if it names none), and the tokenizer's
EOS, at which these servers stop too. It skips published base models under their own names, servers with another
template or other generation settings, and projects in which a file sets its own stop.

## Why it is bad
The model ends its turn, but generation continues: it writes the user's next turn and answers itself, until the token
limit. This is common if a base model was trained on chats: the base's files only stop at `<|endoftext|>`.

## Example
```yaml
files:
  serve.sh: vllm serve ./m --port 8000
  m/config.json: {eos_token_id: 1}
  m/tokenizer_config.json:
    chat_template: "<|turn>user {{ m }}<turn|>"
    added_tokens_decoder: {"7": {content: "<turn|>"}}
```

## Use instead
```yaml
files:
  serve.sh: vllm serve ./m --port 8000
  m/config.json: {eos_token_id: [7, 1]}
  m/tokenizer_config.json:
    chat_template: "<|turn>user {{ m }}<turn|>"
    added_tokens_decoder: {"7": {content: "<turn|>"}}
```

## Fix safety
Safe if the server answers chats: `eos_token_id` accepts a list.

## References
- vllm-project/vllm#4180, hiyouga/LlamaFactory#7454
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.template_marks_before_questions import (
    mark_before_question_of_chat_model,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CommandRule
from truetune.checks.sglang_server_commands import sglang_server
from truetune.checks.source.evidence.model_folder_settings import (
    is_model_folder,
    read_folder_settings,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import family_of_model
from truetune.checks.source.evidence.turn_ends_missing_from_stop_tokens import unheeded_turn_end
from truetune.checks.tgi_server_commands import tgi_server_started_by_command
from truetune.checks.vllm_server_commands import find_vllm_server_commands, model_of_server
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, ShellCommand

OTHER_SETTINGS = ("--chat-template", "--override-generation-config", "--generation-config")
"""Options by which a server takes its template or its stops from elsewhere"""
OWN_STOP = re.compile(r"\bstop(?:_token_ids|_strings|_sequences)?[\"']?\s*[:=]")
"""A request that names a stop"""
OF_A_BASE = re.compile(r"[a-z]?\d+[a-z]?|base|hf|pt")
"""A part of a base's name behind its family: `2`, `7b`, `v0`, `base`"""
TEXT_FILES = (".py", ".ipynb", ".sh", ".yaml", ".yml", ".json", ".toml", ".js", ".ts")
# Chosen, not measured: a folder with more files than this is no folder of one service.
MAX_FILES = 100


class ServedFolder(NamedTuple):
    """A command that serves a model, and the folder of it on this machine."""

    command: ShellCommand
    folder: Path


def _served_folders(file: CommandFile) -> Iterator[ServedFolder]:
    """The folders that commands serve by the template and stops of their own files."""
    here = Path(file.path).parent
    for command, model in _served_models(file):
        if any(option in command.text for option in OTHER_SETTINGS):
            continue
        folder = here / model
        if is_model_folder(folder):
            yield ServedFolder(command, folder)


def _served_models(file: CommandFile) -> Iterator[tuple[ShellCommand, str]]:
    """The commands that start a server of vLLM, SGLang or TGI, with the model that each loads."""
    for server in find_vllm_server_commands(file):
        model = model_of_server(server)
        if model is not None:
            yield server.command, model
    for command in file.commands:
        other = sglang_server(command) or tgi_server_started_by_command(command)
        if other is not None:
            yield command, other.model


class ServerPassesTheTurnEnd(CommandRule):
    code = "CMD153"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("garbage-output", "never-stops", "good-here-bad-there")
    severity = "warning"
    what = "servers of models in folders that are here"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ServedFolder]:
        """The places that the rule looks at: the servers of models in folders that are here."""
        yield from _served_folders(file)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        for served in self.examined_places(file):
            folder = served.folder
            end = unheeded_turn_end(folder)
            if (
                end is None
                or end.token == _eos_of_tokenizer(folder)
                or _is_published_base(folder.name)
            ):
                continue
            if _service_file_names_stop(Path(file.path).parent):
                return
            stops = [end.id, *end.stops]
            yield self.finding(
                f"the chat template of {folder.name} ends turns with {end.token} ({end.id}), but {end.file.name}"
                f" only stops at {', '.join(map(str, end.stops))}: answers continue with the user's next turn",
                f'write "eos_token_id": {stops} into {folder.name}/generation_config.json',
                cases=[
                    Case(f'"eos_token_id": {end.stops}', file=str(end.file)),
                    self.case_of_command(served.command, served.command.text.strip()),
                ],
            )


def _is_published_base(name: str) -> bool:
    """Is a name that of a published base? A base is asked to continue texts, and not in turns."""
    if family_of_model(name) is None or mark_before_question_of_chat_model(name) is not None:
        return False
    # Behind the family stand its release and size alone; a name of one's own is that of a fine-tune.
    return all(OF_A_BASE.fullmatch(part) for part in re.split(r"[^a-z0-9]+", name.lower())[1:])


def _eos_of_tokenizer(folder: Path) -> str | None:
    """The EOS token of a folder's tokenizer."""
    eos = read_folder_settings(folder / "tokenizer_config.json").get("eos_token")
    if isinstance(eos, dict):
        eos = eos.get("content")
    return eos if isinstance(eos, str) else None


def _service_file_names_stop(folder: Path) -> bool:
    """Does a file of the service name a stop of its own?"""
    for path in islice(sorted(folder.glob("*")), MAX_FILES):
        if path.suffix not in TEXT_FILES or not path.is_file():
            continue
        try:
            text = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
        except (OSError, ValueError, TruetuneError):
            continue
        if OWN_STOP.search(text):
            return True
    return False
