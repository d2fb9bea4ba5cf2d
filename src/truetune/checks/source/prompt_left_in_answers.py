"""Answers are scored or kept with their prompt in front.

## What it does
Follows texts that hold their prompt to where they are used as answers: given to a metric, compared with a reference,
kept under a name such as `prediction` or `response`, or searched for a word that is in the prompt itself, also after
case, punctuation and spaces were made alike. Such texts are `decode` or `batch_decode` of all that a causal model
generated, `generated_text` of a pipeline that is given texts and no `return_full_text=False`, and completions with
`echo=True`. What the handler of a web server or of a demo's page gives back is an answer too, where its prompt holds a
chat or an instruction; so is what a function called `answer` or `ask` returns, and, as a note, what is printed as
`answer`. It also finds replies that go back into the history of a chat with their prompt, or with the special tokens
that the template writes around each turn. Silent where anything that holds the text is cut: the ids after the prompt,
or the text by `split`, `replace`, a slice, a pattern or a function of the file.

## Why it is bad
`generate` of a causal model returns prompt and answer. A metric that gets both compares the question with the
reference; a parser finds its number in the prompt; pairs made of such texts begin with the same words on both sides.

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
There is no automatic fix: cut the ids at the length of the prompt's, `out[:, inputs["input_ids"].shape[1]:]`.

## References
- huggingface/transformers#17117
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
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
    severity = "warning"
    looks_at = CodePlaces("generated texts", _generated_texts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        reported: set[ast.AST] = set()
        for reply in uncleaned_replies_put_into_history(module):
            reported.add(reply.decode.node)
            yield self.finding(
                "a reply goes back into the history with its special tokens, or with all of its prompt: the"
                " template puts"
                " its own around it again, and from turn to turn the prompt is less like those of the training",
                'decode what follows the prompt, without marks: tokenizer.decode(out[0][inputs["input_ids"].shape[1]:],'
                " skip_special_tokens=True), and append that",
                cases=[case_of_node(module, reply.use), case_of_node(module, reply.decode.node)],
            )
        for text in returned_texts_with_prompt(module):
            use = use_as_answer_with_prompt(module, text.node)
            if text.node in reported:
                continue
            if use is not None:
                reported.add(text.node)
                yield self.finding(
                    f"an answer is used with its prompt in front: {text.why}",
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
                    f"an answer is used with its prompt in front: {PROMPT_IN_GENERATION}",
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
                    f"an answer is searched for {word!r} with its prompt in front, and the prompt holds that word:"
                    f" {text.why}",
                    text.remedy,
                    cases=[case_of_node(module, text.node), case_of_node(module, search)],
                )
                return
