"""Ollama writes prompts in another form than the model was trained on.

## What it does
Compares the marks in TEMPLATE with those that the chat template of the tokenizer writes around a question, where the
folder of FROM or ADAPTER holds the tokenizer: marks that TEMPLATE lacks, and marks of another family. No TEMPLATE over
weights of one's own is a note, for Ollama takes the template of a GGUF file only where it knows it by its text, and a
warning where the file is here and holds none.

## Why it is bad
The model sees a prompt that it was never trained on: answers are worse, do not stop, or hold marks of the format. What
it learned comes only behind the marks that stood there in training. Without any template Ollama sends the bare question
(`{{ .Prompt }}`): a tuned model continues it, rambles, and asks itself the next question.

## Example
```text
# model: tokenizer
FROM ./model
TEMPLATE [INST] {{ .Prompt }} [/INST]
PARAMETER stop <|im_end|>
PARAMETER num_ctx 8192
```

## Use instead
```text
# model: tokenizer
FROM ./model
TEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant
PARAMETER stop <|im_end|>
PARAMETER num_ctx 8192
```

## Fix safety
Compare one prompt of both: `truetune serve-check` asks the server.

## References
- Ollama documentation, "Modelfile Reference"; ollama/ollama#1977 (templates of imported models)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.modelfile.modelfile_serves_the_base import LOCAL, WEIGHTS, is_own
from truetune.checks.rule import ModelfileRule
from truetune.errors import TruetuneError
from truetune.render.probes import QUESTION, Probes, chat, prepared
from truetune.spec.run import RunSpec

MARK = re.compile(
    r"<\|[^|<>\s]+\|>|<\uff5c[^<>\s]+\uff5c>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|</?s>|### \w+:"
)
"""Marks of chat formats: ChatML, Llama 2 to 4, Gemma, Mistral, DeepSeek, Phi, Alpaca"""
TEMPLATE_FIELD = b"tokenizer.chat_template"
FIELDS_BYTES = 64 << 20
"""The fields of a GGUF file with a vocabulary of 256,000 tokens and its merges take about 15 MB"""
NO_TOKENIZER = Unmet(
    "neither FROM nor ADAPTER is a folder with a tokenizer on this machine",
    "lay the folder where the Modelfile names it, or ask the server: truetune serve-check",
)


class ModelfileTemplateDiffers(ModelfileRule):
    code = "MFL003"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        if self.subject.last("template") is None:
            return Unmet("it is about TEMPLATE, and there is none: that of FROM holds")
        return None if self._marks_of_training() else NO_TOKENIZER

    def _without_template(self) -> Iterator[Finding]:
        """Weights of one's own, and nothing says how a question is written for them."""
        base = self.subject.last("from")
        if base is None or not is_own(base, self.subject.local("from") is not None):
            return
        if not base.value.startswith(LOCAL) and not base.value.endswith(WEIGHTS):
            return  # a model under a namespace of the library brings its template
        holds = _holds_template(self.subject.local("from"))
        if holds:
            return
        why = (
            f"{base.value} holds none either, so that Ollama sends the bare question"
            if holds is False
            else f"Ollama takes that of {base.value} only where it knows it by its text, and else"
            " sends the bare question"
        )
        yield self.finding(
            f"there is no TEMPLATE: {why}, without the marks of training",
            "write the model's chat template as TEMPLATE, and its end of turn as PARAMETER stop;"
            " `ollama show --template MODEL` prints what is used ({{ .Prompt }} alone is none)",
            severity="warning" if holds is False else "info",
            cases=[self.case(base)],
        )

    def figure(self) -> str:
        marks = self._marks_of_training()
        return f"TEMPLATE writes {len(marks):,} of {len(marks):,} marks of training ({', '.join(marks)})"

    def _marks_of_training(self) -> tuple[str, ...]:
        """The marks before a question and before its answer, as the tokenizer's template writes them."""
        probes = _probes(self.tokenizer_folder)
        text = probes.text(chat(QUESTION, "")) if probes is not None else None
        return tuple(dict.fromkeys(MARK.findall(text))) if text else ()

    def findings(self) -> Iterator[Finding]:
        template = self.subject.last("template")
        if template is None:
            yield from self._without_template()
            return
        marks = self._marks_of_training()
        if not marks:
            return
        written = tuple(dict.fromkeys(MARK.findall(template.value)))
        # Ollama adds the BOS itself; which of a pair of sentence marks is written says nothing.
        lacking = [mark for mark in marks if mark not in written and mark not in ("<s>", "</s>")]
        others = [mark for mark in written if mark not in marks and mark not in ("<s>", "</s>")]
        if not lacking:
            return
        yield self.finding(
            f"TEMPLATE lacks {', '.join(lacking)}, which stood around each question in training"
            + (f"; it writes {', '.join(others)}" if others else ""),
            "write the template of the tokenizer in Ollama's form, or leave TEMPLATE out where FROM"
            " has the model's own",
            evidence=[f"the tokenizer: {self.tokenizer_folder}"],
            cases=[self.case(template)],
        )


def _holds_template(path: Path | None) -> bool | None:
    """Does a GGUF file hold a chat template? None where there is no such file here.

    Its fields stand before its tensors, each behind its name.
    """
    if path is None or not path.is_file() or path.suffix != ".gguf":
        return None
    with path.open("rb") as file:
        return TEMPLATE_FIELD in file.read(FIELDS_BYTES)


def _probes(folder: object) -> Probes | None:
    """The tokenizer of a folder with its template; None where it can't be read."""
    if folder is None:
        return None
    try:
        return prepared(RunSpec(tokenizer=str(folder)))
    except TruetuneError:
        return None
