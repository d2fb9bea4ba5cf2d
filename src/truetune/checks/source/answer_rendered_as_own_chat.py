"""An answer is rendered as a separate chat, so the template opens it like a new conversation.

## What it does
Follows `apply_chat_template` calls that render only an answer's turn to where the result comes after a prompt: as
`chosen`, `rejected` or `completion` of a row, or appended to a rendered prompt. It fires if the template of the model
that the script loads is known to open every chat with a default system prompt (error) or with a BOS token (warning).

## Why it is bad
The answer then begins with that opening: system, user, system, assistant. The model is trained on an order of turns
that no server sends, and the opening counts as part of the answer. Models whose templates have no such opening hide the
mistake.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")


def render(row):
    question = [{"role": "user", "content": row["question"]}]
    good, bad = {"role": "assistant", "content": row["good"]}, {"role": "assistant", "content": row["bad"]}
    return {
        "prompt": tokenizer.apply_chat_template(question, tokenize=False),
        "chosen": tokenizer.apply_chat_template([good], tokenize=False),
        "rejected": tokenizer.apply_chat_template([bad], tokenize=False),
    }


pairs = load_dataset("json", data_files="pairs.jsonl", split="train").map(render)
```

## Use instead
```python
from datasets import load_dataset


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "chosen": [{"role": "assistant", "content": row["good"]}],
        "rejected": [{"role": "assistant", "content": row["bad"]}],
    }


pairs = load_dataset("json", data_files="pairs.jsonl", split="train").map(shape)
```

## Fix safety
There is no automatic fix: either give the trainer messages (as above), or render the whole conversation and cut the
rendered prompt off its beginning.

## References
- huggingface/trl#1930, huggingface/alignment-handbook#117
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answers_rendered_alone import (
    BOS,
    answers_rendered_alone,
    lone_answer_renderings,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node


class AnswerRenderedAsOwnChat(SourceRule):
    code = "SRC424"
    fault = Fault.CHAT_TEMPLATE_APPLIED_TWICE
    symptoms = ("good-here-bad-there",)
    severity = "error"
    looks_at = CodePlaces("answers that are rendered alone", lone_answer_renderings)

    def findings(self) -> Iterator[Finding]:
        answer_rendered_alones = list(answers_rendered_alone(self.subject))
        if not answer_rendered_alones:
            return
        yield self.finding(
            f"each answer is rendered as a separate chat, and the template of {answer_rendered_alones[0].model} writes"
            f" {answer_rendered_alones[0].opening} at its beginning: it ends up between the prompt and the answer",
            "give the trainer lists of messages, or render prompt and answer together and cut the rendered prompt off:"
            " tokenizer.apply_chat_template(question + [answer], tokenize=False)[len(prompt):]",
            # A second BOS alone is a token that the model knows from the beginning of texts.
            severity="warning" if answer_rendered_alones[0].opening == BOS else "error",
            cases=[case_of_node(self.subject, one.node) for one in answer_rendered_alones],
        )
