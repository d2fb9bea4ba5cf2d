"""A request sends a bare question without the chat template that the model was trained with.

## What it does
Looks at `curl` requests whose JSON has a `prompt` that the server uses as it is: Ollama's `/api/generate` with `"raw":
true`, llama.cpp's `/completion`, and `/v1/completions`. It fires if the prompt lacks the turn token that TEMPLATE of
the Modelfile in that folder writes, or that the training there uses. It skips prompts with turn tokens of any form, and
requests that name a hosted or published model.

## Why it is bad
The model was tuned on chat turns. Without them it continues the question like a text: it rambles, asks itself the next
question, and does not stop. `ollama run` and `/v1/chat/completions` apply the template and are fine.

## Example
```yaml
files:
  Modelfile: "FROM ./own.gguf\\nTEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant"
  ask.sh: >-
    curl localhost:11434/api/generate -d '{"model": "own", "prompt": "How do I pay?", "raw": true}'
```

## Use instead
```yaml
files:
  Modelfile: "FROM ./own.gguf\\nTEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant"
  ask.sh: >-
    curl localhost:11434/api/generate -d '{"model": "own", "prompt": "How do I pay?"}'
```

## Fix safety
Safe, unless the model is meant to continue texts.

## References
- Ollama documentation, "API" (`raw`); llama.cpp, tools/server/README.md (`/completion`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.template_marks_before_questions import (
    mark_before_question_in_template,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.modelfile.find_trained_prompt_format_beside import find_trained_format_beside
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.own_or_published_model_names import (
    is_surely_published_or_helper_model,
)
from truetune.checks.source.evidence.questions_without_template import TURN_MARKS
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_ollama_modelfile import is_modelfile_name, read_modelfile
from truetune.parsing.shell_commands import CommandFile, ShellCommand

OF_OLLAMA = re.compile(r"/api/generate/?$")
OF_OTHERS = re.compile(r"/completions?/?$")
# Chosen, not measured: a project has one Modelfile, or one for each size.
MAX_FILES = 40


class RawPrompt(NamedTuple):
    """A request whose prompt the server takes as it is."""

    command: ShellCommand
    prompt: str
    is_of_ollama: bool


class TurnMark(NamedTuple):
    """The mark before a question, and the file that says so."""

    mark: str
    file: str


def _raw_prompts_in(file: CommandFile) -> Iterator[RawPrompt]:
    """The raw prompts that the commands of a file send to a model that may be the project's own."""
    for command in file.commands:
        urls = [word for word in command.words if "/" in word and not word.lstrip().startswith("{")]
        if any(OF_OLLAMA.search(url) for url in urls):
            yield from _raw_prompts_in_json(command, is_of_ollama=True)
        elif any(OF_OTHERS.search(url) and "/chat/" not in url for url in urls):
            yield from _raw_prompts_in_json(command, is_of_ollama=False)


def _raw_prompts_in_json(command: ShellCommand, *, is_of_ollama: bool) -> Iterator[RawPrompt]:
    """The raw prompts in the JSON of a command; Ollama takes a prompt as it is only with `raw`."""
    for body in map(_parse_json_object, command.words):
        prompt, model = body.get("prompt"), body.get("model")
        if not isinstance(prompt, str) or (is_of_ollama and body.get("raw") is not True):
            continue
        # A hosted model, and a published base that is to continue a text, were not trained here.
        if isinstance(model, str) and is_surely_published_or_helper_model(model):
            continue
        yield RawPrompt(command, prompt, is_of_ollama)


def _parse_json_object(word: str) -> dict[str, object]:
    """Parse a word of a command as a JSON object; empty where it is none."""
    if not word.lstrip().startswith("{"):
        return {}
    try:
        body = parse_json(word, REPLY)
    except (ValueError, TruetuneError):
        return {}
    return body if isinstance(body, dict) else {}


class RequestSkipsTheTemplate(CommandRule):
    code = "CMD155"
    fault = Fault.CHAT_MODEL_ASKED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "never-stops", "good-here-bad-there")
    severity = "warning"
    what = "requests whose prompt a server takes as it is"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[RawPrompt]:
        """The places that the rule looks at: the requests whose prompt a server takes as it is."""
        yield from _raw_prompts_in(file)

    def findings(self) -> Iterator[Finding]:
        folder = Path(self.subject.path).resolve().parent
        for request in self.examined_places(self.subject):
            # A variable of the shell may hold a rendered prompt.
            if TURN_MARKS.search(request.prompt) or "$" in request.prompt:
                continue
            form = _mark_in_modelfiles(folder) if request.is_of_ollama else None
            form = form or _mark_in_training(folder)
            if form is None or form.mark in request.prompt:
                continue
            switch = '"raw": true' if request.is_of_ollama else "this address"
            yield self.finding(
                f"the prompt is sent as it is ({switch}), without {form.mark}, which {form.file} writes before each"
                " question: the model gets a format that it was not trained on",
                'remove "raw"'
                if request.is_of_ollama
                else "send messages to /v1/chat/completions: the server then applies the template",
                cases=[self.case_of_command(request.command, request.prompt[:80])],
            )


def _mark_in_modelfiles(folder: Path) -> TurnMark | None:
    """The mark that the Modelfiles of a folder write; None where they write none, or several."""
    forms: list[TurnMark] = []
    for path in sorted(filter(is_modelfile_name, folder.glob("*")))[:MAX_FILES]:
        try:
            template = read_modelfile(path).last("template")
        except (OSError, ValueError, TruetuneError):
            continue
        mark = mark_before_question_in_template(template.value) if template is not None else None
        if mark is not None:
            forms.append(TurnMark(mark, path.name))
    marks = {form.mark for form in forms}
    return forms[0] if len(marks) == 1 else None


def _mark_in_training(folder: Path) -> TurnMark | None:
    """The mark that the training beside a request writes."""
    trained = find_trained_format_beside(folder)
    return None if trained is None else TurnMark(trained.mark, trained.path.name)
