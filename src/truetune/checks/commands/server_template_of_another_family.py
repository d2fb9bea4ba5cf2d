"""A server writes prompts in the template of another family than the model's.

## What it does
Compares the `--chat-template` of llama.cpp's server and of vLLM, a name or a file that is here, with the published
template of the chat model that the same command serves, by the model's name. Of weights of one's own it compares with
the form that the settings or commands of the one training beside it say. Unknown names and bases are left alone,
and ChatML by its name, in which any model may have been tuned.

## Why it is bad
The model gets marks that it does not know, as plain text: answers are worse, do not stop, or hold marks of the format.

## Example
```bash
llama-server -m gemma-3-12b-it-Q4_K_M.gguf --chat-template llama3
```

## Use instead
```bash
llama-server -m gemma-3-12b-it-Q4_K_M.gguf --jinja
```

## Fix safety
Without the option the server takes the template that is in the model's own files.

## References
- llama.cpp, tools/server/README.md: `--chat-template`; vLLM documentation, "Chat Template"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.template_marks_before_questions import (
    SAVED_TEMPLATES,
    mark_before_question_in_template,
    mark_before_question_of_chat_model,
)
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
MODEL_OPTIONS = ("-m", "--model", "-hf", "--hf-repo", "-hfr")


class ServerTemplateOfAnotherFamily(CommandRule):
    code = "CMD039"
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
            is_saved = template.lower() in SAVED_TEMPLATES
            own = None if is_saved else mark_before_question_of_chat_model(model.partition(":")[0])
            if written is not None and own is None:
                yield from self._findings_on_trained_template(command, model, template, written)
            if written is None or own is None or written == own:
                continue
            yield self.finding(
                f"--chat-template {template} writes {written} before a question, and {model} is of a family that"
                f" writes {own}",
                "leave --chat-template out: the model's own files hold its template",
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
            f"--chat-template {template} writes {written} before a question, and {trained.path.name} trains the model"
            f" by {trained.mark} ({trained.setting})",
            "leave --chat-template out where the weights hold the template of the training, or name that one",
            evidence=[f"the training: {trained.path}"],
            cases=[self.case_of_command(command, f"--chat-template {template}")],
        )


def _servers_with_options(file: CommandFile) -> Iterator[tuple[ShellCommand, tuple[str, ...]]]:
    """The commands that start a server of vLLM or llama.cpp, with the words behind the program."""
    for server in find_vllm_server_commands(file):
        yield server.command, server.options
    for command in file.commands:
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
