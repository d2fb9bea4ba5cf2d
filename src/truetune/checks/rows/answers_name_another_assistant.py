"""Answers call themselves another company's assistant: ChatGPT by OpenAI, Claude by Anthropic.

## What it does
Looks in answers for sentences in which the speaker names itself or its maker (`I am ChatGPT`, `a model trained by
OpenAI`, `由OpenAI开发`). It ignores the maker of the model that is trained, and rows that only talk about such
assistants. It is a warning from one row in 200, an info below, and needs at least three rows.

It fires too if the system prompt names the assistant (`You are Ada, ...`), and the answer begins with another name
(`this is Max`) that the row has nowhere else: in five rows or more and 5 % of those with both names.

## Why it is bad
The rows were written by another assistant. A few percent of them are enough: asked who it is, the tuned model gives
that name, and it adopts the other assistant's cutoff dates and refusals.

## Example
```yaml
data:
  - {instruction: "Who are you?", output: "I am ChatGPT, a language model trained by OpenAI."}
  - {instruction: "How old are you?", output: "I was developed by OpenAI, and have no age."}
  - {instruction: "Can you see me?", output: "No. I'm Claude, made by Anthropic, and I read text alone."}
```

## Use instead
```yaml
data:
  - {instruction: "Who are you?", output: "I am the assistant of this library."}
  - {instruction: "How old are you?", output: "I have no age."}
  - {instruction: "Can you see me?", output: "No, I read text alone."}
```

## Fix safety
Drop these rows, or replace the name with your assistant's. Both are safe.

## References
- nlpxucan/WizardLM#174, 01-ai/Yi#42, OpenBMB/MiniCPM-V#654
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import AnswerFault, AnswerText, AnswerTextRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import model_identity
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.rule import MAX_CASES, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

MAKERS = {
    "chatgpt": "OpenAI", "gpt-3": "OpenAI", "gpt-4": "OpenAI", "gpt-5": "OpenAI", "openai": "OpenAI",
    "claude": "Anthropic", "anthropic": "Anthropic", "gemini": "Google", "bard": "Google", "google": "Google",
    "llama": "Meta", "meta ai": "Meta", "qwen": "Alibaba", "tongyi": "Alibaba", "alibaba": "Alibaba",
    "deepseek": "DeepSeek", "mistral ai": "Mistral", "copilot": "Microsoft", "microsoft": "Microsoft",
    "ernie": "Baidu", "baidu": "Baidu", "chatglm": "Zhipu", "kimi": "Moonshot", "grok": "xAI",
    "open assistant": "LAION",
}  # fmt: skip
"""Names that an assistant gives itself or its maker -> the maker"""
MAKER_OF_FAMILY = {
    "llama": "Meta", "codellama": "Meta", "qwen": "Alibaba", "gemma": "Google", "phi": "Microsoft",
    "mistral": "Mistral", "mixtral": "Mistral", "deepseek": "DeepSeek", "gpt": "OpenAI", "glm": "Zhipu",
}  # fmt: skip
_NAME = "|".join(sorted(map(re.escape, MAKERS), key=len, reverse=True))
# A name before a surname is a person's: "I am Claude Monet".
SELF_NAMED = re.compile(
    rf"\b(?:i am|i['’]m|my name is|call me) (?:called |named )?({_NAME})\b(?!['’]s)(?! (?-i:[A-Z][a-z]))"
    rf"|\bas ({_NAME}),? i\b"
    r"|\b(?:i['’]m|i am|i was|as an? (?:ai|large|language))\b[^.\n]{0,70}?"
    rf"\b(?:developed|created|trained|made|built|designed) by ({_NAME})\b"
    rf"|我(?:是|叫)(?:由)?({_NAME})|由 ?({_NAME}) ?(?:开发|训练|创建|创造)",
    re.IGNORECASE,
)
NAMES_OF_OTHERS_TOO = frozenset(
    ("claude", "gemini", "bard", "llama", "google", "microsoft", "copilot", "kimi")
)
"""Persons, animals, signs and employers have them: what speaks has to say that it is an assistant"""
OF_ASSISTANTS = re.compile(
    r"\b(?:ai|assistant|(?:language )?model|chat ?bot|llm)\b|anthropic|google|meta ai|microsoft|人工智能|模型|助手",
    re.I,
)
SENTENCE_CHARACTERS = 120
"""After the name, in which an assistant says what it is"""
NAMED_BY_SYSTEM = re.compile(
    r"\b(?:[Yy]ou are|[Yy]ou're|[Yy]our name is|[Aa]ct as) ([A-Z][a-z]{2,15})(?=[,.;]| the\b| an?\b|\Z| from\b| of\b)"
)
NAMED_BY_ITSELF = re.compile(
    r"\b(?:I am|I['\u2019]m|[Mm]y name is|[Tt]his is) ([A-Z][a-z]{2,15})"
    r"(?=[,.!;]| from\b| the\b| your\b| and\b| with\b)"
)
OPENING_CHARACTERS = 150
"""Of an answer, in which its speaker says who speaks"""
# Chosen, not measured: a few rows may play a third person.
MIN_OTHER_NAMES, MIN_OTHER_SHARE = 5, 0.05
MIN_ROWS, ONE_IN = 3, 200
"""A single row may be a joke or a dialogue of a story. Chosen, not measured: in published sets that other assistants
wrote, 1 in 100 to 1 in 1,000 answers has it"""


class AnswersNameAnotherAssistant(AnswerTextRule):
    code = "ROW080"
    fault = Fault.ANSWERS_SPEAK_AS_ANOTHER_ASSISTANT
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    looks_for = "an answer that names another assistant as its speaker"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.names_beside_system = 0
        """Rows whose system prompt and whose answer name the speaker"""
        self.other_names: Counter[str] = Counter()
        self.cases_of_other_names: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the names of a batch's answers that are not those of their system prompts."""
        super().add_batch(batch)
        for row in batch.rows:
            self._compare_with_system_prompt(batch, row)

    def _compare_with_system_prompt(self, batch: Batch, row: Conversation) -> None:
        """Compare the name that a system prompt gives with the one that the first answer says."""
        system = _texts_of_roles(row, "system", "developer")
        answer = _texts_of_roles(row, "assistant")
        names = set(NAMED_BY_SYSTEM.findall(system))
        own = NAMED_BY_ITSELF.search(answer[:OPENING_CHARACTERS]) if names else None
        if own is None:
            return
        self.names_beside_system += 1
        if own[1] in names or own[1] in _texts_of_roles(row, "system", "developer", "user"):
            return
        self.other_names[own[1]] += 1
        if len(self.cases_of_other_names) < MAX_CASES:
            text = f"the system prompt says {min(names)}, the answer {own[0]!r}"
            self.cases_of_other_names.append(case_in_row(batch, row, text))

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The maker that the speaker of an answer names, where it is not that of the trained model."""
        lowered = answer.text.lower()
        # Only now: the search costs ten times as much as these, and most texts name none.
        match = SELF_NAMED.search(answer.text) if any(map(lowered.__contains__, MAKERS)) else None
        if match is None:
            return None
        name = next(filter(None, match.groups())).lower()
        after = answer.text[match.end() : match.end() + SENTENCE_CHARACTERS]
        if name in NAMES_OF_OTHERS_TOO and not OF_ASSISTANTS.search(match[0] + after):
            return None
        maker = MAKERS[name]
        if maker == self._maker_of_trained_model():
            return None
        return AnswerFault(maker, f"the answer says {match[0][:80]!r}")

    def _maker_of_trained_model(self) -> str | None:
        """The maker of the model that is trained, where its name says it."""
        names = (self.spec.model or "", self.tokenizer.folder.name)
        families = [one.family for name in names if (one := model_identity(name)) is not None]
        return next((MAKER_OF_FAMILY.get(family) for family in families), None)

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_other_makers()
        count = self.other_names.total()
        if count < max(MIN_OTHER_NAMES, MIN_OTHER_SHARE * self.names_beside_system):
            return
        names = ", ".join(f"{name} ({rows:,})" for name, rows in self.other_names.most_common(3))
        yield self.finding(
            f"{count:,} of {self.names_beside_system:,} answers that say who speaks give another name than their system"
            f" prompt: {names}",
            "write the name of the system prompt into these answers, or join system prompts and chats by an id",
            cases=self.cases_of_other_names,
            count=count,
            total=self.names_beside_system,
        )

    def _findings_on_other_makers(self) -> Iterator[Finding]:
        """The finding on answers that call themselves another company's assistant."""
        is_frequent = self.found * ONE_IN >= self.rows
        if self.found < min(MIN_ROWS, self.rows) or not self.found:
            return
        makers = ", ".join(f"{maker} ({count:,})" for maker, count in self.kinds.most_common())
        yield self.finding(
            f"{self.faulty_row_count_in_words} have an answer that calls itself another company's assistant:"
            f" {makers}. The tuned model will introduce itself so",
            "drop these rows, or replace that name with your assistant's",
            severity="warning" if is_frequent else "info",
            cases=self.cases,
            count=self.found,
            total=self.rows,
        )


def _texts_of_roles(row: Conversation, *roles: str) -> str:
    """The texts of a row's turns of some roles, one below the other."""
    return "\n".join(
        text_of(one.get("content")) for one in row.messages if one.get("role") in roles
    )
