"""A server uses the chat template of another model family.

## What it does
Compares `--chat-template` of llama.cpp's server, of SGLang and of vLLM (a name, or a file on this machine) with the
published template of the chat model that the same command serves, by the model's name. For your own weights it compares
with the format in the settings or commands of the training next to it, if there is only one. It skips unknown names,
base models, and ChatML by its name unless the model is one of Meta, Google or Mistral AI themselves, because any other
may have been tuned with it.

## Why it is bad
The model gets turn tokens that it does not know, as plain text: answers are worse, do not stop, or contain the tokens
as text.

## Example
```bash
llama-server -m gemma-3-12b-it-Q4_K_M.gguf --chat-template llama3
```

## Use instead
```bash
llama-server -m gemma-3-12b-it-Q4_K_M.gguf --jinja
```

## Fix safety
Without the option, the server uses the template in the model's own files.

## References
- llama.cpp, tools/server/README.md: `--chat-template`; vLLM documentation, "Chat Template"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.template_marks_before_questions import (
    SAVED_TEMPLATES,
    mark_before_question_in_template,
    mark_before_question_of_chat_model,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.modelfile.find_trained_prompt_format_beside import find_trained_format_beside
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.errors import DataError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

LLAMA_CPP = ("llama-server", "llama-cli")
LLAMA_CPP_IMAGE = "llama.cpp:"
MODEL_OPTIONS = ("-m", "--model", "--model-path", "-hf", "--hf-repo", "-hfr")
OWN_FORM = re.compile(r"(?:meta-llama|google|mistralai)/")
"""Owners on the hub who publish no model in ChatML"""


class ServerTemplateOfAnotherFamily(CommandRule):
    code = "CMD039"
    fault = Fault.CHAT_TEMPLATE_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    what = "servers that are given a chat template"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[tuple[ShellCommand, str, str]]:
        """Commands that serve a model by a template, with the model and the template."""
        for command, options in _servers_with_options(file):
            template = last_option(options, "--chat-template", "--chat-template-file")
            model = last_option(options, *MODEL_OPTIONS) or ""
            # `vllm serve MODEL`: the model stands behind the program, without an option.
            if not model and options and not options[0].startswith("-"):
                model = options[0]
            if template and model:
                yield command, model, template

    def findings(self) -> Iterator[Finding]:
        for command, model, template in self.examined_places(self.subject):
            written = mark_before_question_in_template(
                _template_text_or_name(self.subject, template)
            )
            # `owner/model:Q4_K_M` names a file of a repository. Any model may have been tuned in ChatML.
            is_saved = template.lower() in SAVED_TEMPLATES and not OWN_FORM.match(model)
            own = None if is_saved else mark_before_question_of_chat_model(model.partition(":")[0])
            if written is not None and own is None:
                yield from self._findings_on_trained_template(command, model, template, written)
            if written is None or own is None or written == own:
                continue
            yield self.finding(
                f"--chat-template {template} writes {written} before a question, but {model} belongs to a family"
                f" that writes {own}",
                "remove --chat-template, so that the server uses the template in the model's own files",
                cases=[self.case_of_command(command, f"--chat-template {template}")],
            )

    def _findings_on_trained_template(
        self, command: ShellCommand, model: str, template: str, written: str
    ) -> Iterator[Finding]:
        """Findings on a server of weights of one's own, whose training beside it names another
        template.
        """
        path = Path(self.subject.path)
        is_own = model.endswith(".gguf") or model.startswith((".", "/", "$", "~"))
        trained = find_trained_format_beside(path.resolve().parent) if is_own else None
        if trained is None or trained.mark in _template_text_or_name(self.subject, template):
            return
        if trained.mark == written:
            return
        yield self.finding(
            f"--chat-template {template} writes {written} before a question, but {trained.path.name} trains the"
            f" model with {trained.mark} ({trained.setting})",
            (
                "remove --chat-template if the model's files contain the template of the training, or set it to"
                " that template"
            ),
            evidence=[f"the training: {trained.path}"],
            cases=[self.case_of_command(command, f"--chat-template {template}")],
        )


def _servers_with_options(file: CommandFile) -> Iterator[tuple[ShellCommand, tuple[str, ...]]]:
    """The commands that start a server of vLLM or llama.cpp, with the words behind the program."""
    for server in find_vllm_server_commands(file):
        yield server.command, server.options
    for command in file.commands:
        of_sglang = command.words_following("-m", "sglang.launch_server")
        if of_sglang is not None:
            yield command, of_sglang
            continue
        behind = (command.words_following(name) for name in LLAMA_CPP)
        options = next((words for words in behind if words is not None), None)
        image = next((n for n, word in enumerate(command.words) if LLAMA_CPP_IMAGE in word), None)
        if options is None and image is not None:
            options = command.words[image + 1 :]
        if options is not None:
            yield command, options


def _template_text_or_name(file: CommandFile, template: str) -> str:
    """The text of a template's file where it is beside the commands, else its name."""
    path = Path(file.path).parent / template
    try:
        # A template given as text may be longer than any name of a file, which the system refuses.
        if "{" in template or not path.is_file():
            return template
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError, DataError):
        return template
