"""Ollama builds prompts in another format than the model was trained on.

## What it does
If Axolotl or LLaMA-Factory settings next to the Modelfile give the prompt format (`type: alpaca`, `chat_template:`,
`template:`), TEMPLATE has to write the turn tokens of that format. Otherwise, if the folder of FROM or ADAPTER contains
the tokenizer, it compares the turn tokens in TEMPLATE with those that the tokenizer's chat template writes around a
question: tokens that TEMPLATE lacks, and tokens of another family. If no tokenizer is on this machine, the name of a
chat model (in FROM, or as the adapter's base) gives the family. No TEMPLATE for your own weights is info, because
Ollama only uses the template in a GGUF file if it recognises its text, and a warning if the file is on this machine and
contains none.

## Why it is bad
The model sees a prompt that it was never trained on: answers are worse, do not stop, or contain turn tokens as text.
What it learned only appears after the turn tokens of the training. Without any template, Ollama sends the bare question
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

from truetune.checks.config.evidence.template_marks_before_questions import (
    mark_before_question_in_template,
    mark_before_question_of_chat_model,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import base_of_adapter
from truetune.checks.judgement import Unmet
from truetune.checks.modelfile.classify_weights_named_by_modelfile import (
    is_file_or_folder_name,
    is_own_weights,
)
from truetune.checks.modelfile.find_trained_prompt_format_beside import (
    TrainedFormat,
    find_trained_format_beside,
)
from truetune.checks.rule import ModelfileRule
from truetune.errors import TruetuneError
from truetune.parsing.read_ollama_modelfile import Instruction
from truetune.render.template_probes import (
    QUESTION,
    Probes,
    alternating_chat,
    load_tokenizer_and_template_of_run,
)
from truetune.settings.run_spec import RunSpec

MARK = re.compile(
    r"<\|[^|<>\s]+\|>|<\uff5c[^<>\s]+\uff5c>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|</?s>|### \w+:"
)
"""Marks of chat formats: ChatML, Llama 2 to 4, Gemma, Mistral, DeepSeek, Phi, Alpaca"""
LIBRARY_TAG = re.compile(r"([a-z][\w.-]*):([\w.-]+)")
"""A model of Ollama's library: `llama3.1:8b-instruct-q8_0`"""
TEMPLATE_FIELD = b"tokenizer.chat_template"
# The fields of a GGUF file with a vocabulary of 256,000 tokens and its merges take about 15 MB; four times that.
MAX_FIELDS_BYTES = 64 << 20
NO_TOKENIZER = Unmet(
    "neither FROM nor ADAPTER is a folder with a tokenizer on this machine",
    "lay the folder where the Modelfile names it, or ask the server: truetune serve-check",
)


class ModelfileTemplateDiffers(ModelfileRule):
    code = "MFL003"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet without a TEMPLATE, and where the format of the training is not known."""
        if self.subject.last("template") is None:
            return Unmet("it is about TEMPLATE, and there is none: that of FROM holds")
        if find_trained_format_beside(Path(self.subject.path).resolve().parent) is not None:
            return None
        return (
            None
            if self._trained_question_and_answer_marks() or self._chat_model_with_user_marker()
            else NO_TOKENIZER
        )

    def _chat_model_with_user_marker(self) -> tuple[str, str] | None:
        """(published name of a chat model, its marker before a question); None if no name says one.

        The name is that of the adapter's base, else what FROM names: a file or a tag of Ollama's
        library.
        """
        names = []
        adapter, base = self.subject.last("adapter"), self.subject.last("from")
        if adapter is not None:
            named = base_of_adapter(adapter.value, self.subject.path)
            names += [named[0]] if named is not None else []
        if base is not None:
            names.append(base.value.replace("\\", "/"))
            # The library's tags are of chat models, but for those that say otherwise.
            tag = LIBRARY_TAG.fullmatch(base.value)
            if tag is not None and not re.search(r"text|base", tag[2]):
                names.append(f"{tag[1]}-{tag[2]}-instruct")
        for name in names:
            mark = mark_before_question_of_chat_model(name)
            if mark is not None:
                return name, mark
        return None

    def _finding_on_missing_template(self) -> Iterator[Finding]:
        """The finding that nothing says how a question is written for weights of the user's own."""
        base = self.subject.last("from")
        if base is None or not is_own_weights(
            base, self.subject.local_path_of_instruction("from") is not None
        ):
            return
        # A model under a namespace of the library brings its template.
        if not is_file_or_folder_name(base):
            return
        has_template = _does_gguf_hold_template(self.subject.local_path_of_instruction("from"))
        if has_template:
            return
        reason = (
            f"Ollama only uses the one in {base.value} if it recognises its text, and sends the bare question"
            " otherwise"
        )
        if has_template is False:
            reason = f"{base.value} contains none either, so Ollama sends the bare question"
        yield self.finding(
            f"there is no TEMPLATE: {reason}, without the turn tokens of the training",
            "write the model's chat template as TEMPLATE, and its turn-end token as PARAMETER stop; `ollama show"
            " --template MODEL` prints the template in use (only {{ .Prompt }} means none)",
            severity="warning" if has_template is False else "info",
            cases=[self.case_of_instruction(base)],
        )

    def measurement_if_clean(self) -> str:
        """The marks of the training that TEMPLATE writes."""
        trained = find_trained_format_beside(Path(self.subject.path).resolve().parent)
        if trained is not None:
            return f"TEMPLATE writes {trained.mark}, as {trained.path.name} does in training"
        marks = self._trained_question_and_answer_marks()
        model = self._chat_model_with_user_marker()
        if not marks and model is not None:
            return f"TEMPLATE writes {model[1]}, as the published template of {model[0]} does"
        return f"TEMPLATE writes {len(marks):,} of {len(marks):,} marks of training ({', '.join(marks)})"

    def _trained_question_and_answer_marks(self) -> tuple[str, ...]:
        """The marks before a question and before its answer, as the tokenizer's template writes them."""
        probes = _read_tokenizer_with_template(self.tokenizer_folder)
        text = probes.text(alternating_chat(QUESTION, "")) if probes is not None else None
        return tuple(dict.fromkeys(MARK.findall(text))) if text else ()

    def findings(self) -> Iterator[Finding]:
        template = self.subject.last("template")
        if template is None:
            yield from self._finding_on_missing_template()
            return
        trained = find_trained_format_beside(Path(self.subject.path).resolve().parent)
        if trained is not None:
            # The settings of the training say the prompt; what the model's family writes counts no more.
            yield from self._finding_on_another_format(template, trained)
            return
        trained_marks = self._trained_question_and_answer_marks()
        if not trained_marks:
            yield from self._finding_on_another_family(template)
            return
        written_marks = tuple(dict.fromkeys(MARK.findall(template.value)))
        lacking = _marks_beyond(trained_marks, written_marks)
        if not lacking:
            return
        others = _marks_beyond(written_marks, trained_marks)
        yield self.finding(
            f"TEMPLATE lacks {', '.join(lacking)}, which were around each question in training"
            + (f"; it writes {', '.join(others)}" if others else ""),
            "write the tokenizer's chat template in Ollama's syntax, or remove TEMPLATE if the file in FROM"
            " contains the model's own",
            evidence=[f"the tokenizer: {self.tokenizer_folder}"],
            cases=[self.case_of_instruction(template)],
        )

    def _finding_on_another_format(
        self, template: Instruction, trained: TrainedFormat
    ) -> Iterator[Finding]:
        """TEMPLATE lacks the mark of the format that the settings beside it train."""
        if trained.mark in template.value:
            return
        written = mark_before_question_in_template(template.value)
        instead = f"; it writes {written}" if written else ""
        yield self.finding(
            f"TEMPLATE lacks {trained.mark}, which {trained.path.name} writes before each question in training"
            f" ({trained.setting}){instead}",
            (
                "write the training prompt as TEMPLATE, word for word, and the token that ends an answer as"
                " PARAMETER stop"
            ),
            evidence=[f"training settings: {trained.path}"],
            cases=[self.case_of_instruction(template)],
        )

    def _finding_on_another_family(self, template: Instruction) -> Iterator[Finding]:
        """TEMPLATE writes the marks of another family than that of the model, by its name."""
        model, written = (
            self._chat_model_with_user_marker(),
            mark_before_question_in_template(template.value),
        )
        # A template that holds the mark of the model anywhere knows its format.
        if model is None or written is None or model[1] in template.value:
            return
        yield self.finding(
            (
                f"TEMPLATE writes {written} before a question, but {model[0]} belongs to a family that writes"
                f" {model[1]}"
            ),
            "write the template of the model's own family, and its turn-end token as PARAMETER stop",
            evidence=["inferred from the model's name: its tokenizer is not on this machine"],
            cases=[self.case_of_instruction(template)],
        )


def _marks_beyond(marks: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    """The marks that are not among the others."""
    # Ollama adds the BOS itself; which of a pair of sentence marks is written says nothing.
    return [mark for mark in marks if mark not in others and mark not in ("<s>", "</s>")]


def _does_gguf_hold_template(path: Path | None) -> bool | None:
    """Does a GGUF file hold a chat template? None where there is no such file here.

    Its fields stand before its tensors, each behind its name: a search for the name needs no reader of the format.
    """
    if path is None or not path.is_file() or path.suffix != ".gguf":
        return None
    with path.open("rb") as file:
        return TEMPLATE_FIELD in file.read(MAX_FIELDS_BYTES)


def _read_tokenizer_with_template(folder: Path | None) -> Probes | None:
    """The tokenizer of a folder with its template; None where it can't be read."""
    if folder is None:
        return None
    try:
        return load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder)))
    except TruetuneError:
        return None
