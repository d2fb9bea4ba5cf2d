"""Ollama writes prompts in another form than the model was trained on.

## What it does
Compares the marks in TEMPLATE with those that the chat template of the tokenizer writes around a question, where the
folder of FROM or ADAPTER holds the tokenizer: marks that TEMPLATE lacks, and marks of another family.

## Why it is bad
The model sees a prompt that it was never trained on: answers are worse, do not stop, or hold marks of the format. What
it learned comes only behind the marks that stood there in training.

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

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ModelfileRule
from truetune.errors import TruetuneError
from truetune.render.probes import QUESTION, Probes, chat, prepared
from truetune.spec.run import RunSpec

MARK = re.compile(
    r"<\|[^|<>\s]+\|>|<\uff5c[^<>\s]+\uff5c>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|</?s>|### \w+:"
)
"""Marks of chat formats: ChatML, Llama 2 to 4, Gemma, Mistral, DeepSeek, Phi, Alpaca"""
NO_TOKENIZER = Unmet(
    "neither FROM nor ADAPTER is a folder with a tokenizer on this machine",
    "lay the folder where the Modelfile names it, or ask the server: truetune serve-check",
)


class ModelfileTemplateDiffers(ModelfileRule):
    code = "TT672"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        if self.subject.last("template") is None:
            return Unmet("it is about TEMPLATE, and there is none: that of FROM holds")
        return None if self._marks_of_training() else NO_TOKENIZER

    def figure(self) -> str:
        marks = self._marks_of_training()
        return f"TEMPLATE writes {len(marks):,} of {len(marks):,} marks of training ({', '.join(marks)})"

    def _marks_of_training(self) -> tuple[str, ...]:
        """The marks before a question and before its answer, as the tokenizer's template writes them."""
        probes = _probes(self.tokenizer_folder)
        text = probes.text(chat(QUESTION, "")) if probes is not None else None
        return tuple(dict.fromkeys(MARK.findall(text))) if text else ()

    def findings(self) -> Iterator[Finding]:
        template, marks = self.subject.last("template"), self._marks_of_training()
        if template is None or not marks:
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


def _probes(folder: object) -> Probes | None:
    """The tokenizer of a folder with its template; None where it can't be read."""
    if folder is None:
        return None
    try:
        return prepared(RunSpec(tokenizer=str(folder)))
    except TruetuneError:
        return None
