"""Answers are scored or stored together with their prompt.

## What it does
Traces texts that contain their prompt to code that uses them as answers: they are passed to a metric, compared with a
reference, stored under a name such as `prediction` or `response`, or searched for a word that is in the prompt itself
(also after case, punctuation and spaces were normalised). Such texts are `decode` or `batch_decode` of all that a
causal model generated, `generated_text` of a pipeline that gets texts and no `return_full_text=False`, and completions
with `echo=True`.

What a web server's or demo's handler returns is an answer too if its prompt contains a chat or an instruction. So is
what a function called `answer` or `ask` returns, and, as info, what is printed as `answer`. It also finds replies that
go back into the history of a chat with their prompt, or with the special tokens that the template writes around each
turn. It does not fire if the text is cut: the ids after the prompt are taken, or the text goes through `split`,
`replace`, a slice, a pattern or a function of the file.

## Why it is bad
`generate` of a causal model returns prompt and answer. A metric that gets both compares the question with the
reference; a parser finds its number in the prompt; preference pairs made of such texts start with the same words on
both sides.

## Example
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
metric = evaluate.load("rouge")
for row in rows:
    inputs = tokenizer(row["prompt"], return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=64)
    text = tokenizer.decode(out[0], skip_special_tokens=True)
    metric.add(prediction=text, reference=row["answer"])
```

## Use instead
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
metric = evaluate.load("rouge")
for row in rows:
    inputs = tokenizer(row["prompt"], return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=64)
    text = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    metric.add(prediction=text, reference=row["answer"])
```

## Fix safety
There is no automatic fix: cut the ids at the length of the prompt, `out[:, inputs["input_ids"].shape[1]:]`. Scores
change, so score earlier models again.

## References
- huggingface/transformers#17117
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answers_used_with_prompt_in_front import (
    answers_with_prompt,
    uncleaned_replies_put_into_history,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.decoded_answers_with_prompt import (
    decodes_of_generated_ids,
    searches_in_text,
    use_as_answer_with_prompt,
)
from truetune.checks.source.evidence.returned_texts_with_prompt import (
    CUT_DECODED_IDS,
    PROMPT_IN_GENERATION,
    PromptedText,
    returned_texts_with_prompt,
    searched_word_in_prompt,
)
from truetune.source.parsed_source_file import Module


def _generated_texts(module: Module) -> Iterator[object]:
    """Generated texts: decodes of any part of what was generated, and others that hold their prompt."""
    decoded = {call.node for call in decodes_of_generated_ids(module)}
    yield from decoded
    yield from (
        text.node for text in returned_texts_with_prompt(module) if text.node not in decoded
    )


class PromptLeftInAnswers(SourceRule):
    code = "SRC076"
    fault = Fault.ANSWERS_CONTAIN_THEIR_PROMPT
    severity = "warning"
    looks_at = CodePlaces("generated texts", _generated_texts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        reported: set[ast.AST] = set()
        for reply in uncleaned_replies_put_into_history(module):
            reported.add(reply.decode.node)
            yield self.finding(
                "a reply goes back into the history with its special tokens, or with its whole prompt: the template"
                " adds its own again, so each turn's prompt is less like those in training",
                "append only the reply without special tokens:"
                ' tokenizer.decode(out[0][inputs["input_ids"].shape[1]:], skip_special_tokens=True)',
                cases=[case_of_node(module, reply.use), case_of_node(module, reply.decode.node)],
            )
        for text in returned_texts_with_prompt(module):
            use = use_as_answer_with_prompt(module, text.node)
            if text.node in reported:
                continue
            if use is not None:
                reported.add(text.node)
                yield self.finding(
                    f"an answer is used together with its prompt: {text.why}",
                    text.remedy,
                    cases=[case_of_node(module, text.node), case_of_node(module, use)],
                )
                continue
            for finding in self._findings_on_word_search(text):
                reported.add(text.node)
                yield finding
        for answer in answers_with_prompt(module):
            if answer.decode.node not in reported:
                yield self.finding(
                    f"an answer is used together with its prompt: {PROMPT_IN_GENERATION}",
                    CUT_DECODED_IDS,
                    severity="info" if answer.is_only_shown else "warning",
                    cases=[
                        case_of_node(module, answer.decode.node),
                        case_of_node(module, answer.use),
                    ],
                )

    def _findings_on_word_search(self, text: PromptedText) -> Iterator[Finding]:
        """The finding on a text that is searched for a word of its own prompt."""
        module = self.subject
        for search in searches_in_text(module, text.node):
            word = searched_word_in_prompt(module, text, search.left)
            if word is not None:
                yield self.finding(
                    f"an answer is searched for {word!r} together with its prompt, which contains that word:"
                    f" {text.why}",
                    text.remedy,
                    cases=[case_of_node(module, text.node), case_of_node(module, search)],
                )
                return
