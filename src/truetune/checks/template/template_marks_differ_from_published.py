"""The chat template writes its model family's control tokens differently from the published template.

## What it does
Renders a question, an answer and the next question, and compares the headers, turn ends and white space with those of
the published models that have the same control tokens (ChatML, Llama 3, Gemma, Phi, DeepSeek, Granite, Command R). It
also finds

- text in a template that is not a token, but differs from one only in bars, brackets or case (`<|User|>` for
  `<｜User｜>`),
- further control tokens (BOS, another EOS) between turns, where the published template has none,
- control tokens whose flags are not the published ones: they strip white space (`lstrip`, `rstrip`), are found only
  between blanks (`single_word`), a turn end is not a special token, or `split_special_tokens` splits all of them.

Text that is not a token, `single_word` and `split_special_tokens` are errors, the rest are warnings. Another format is
an info if the model's name says that it is a base model (`Qwen3-8B-Base`, `Llama-3.1-8B`).

## Why it is bad
A chat model was trained on the published format, to the character. A space instead of a line break, one line break
instead of two, or `assistant` instead of `model` gives other tokens. Each turn is then outside of what the model knows,
and the loss of the first steps goes into learning the new format. Other programs write the published format, so the
prompts in serving differ from those in training. A marker that is not a token is split into pieces, and ends
nothing.

## Example
```yaml
tokenizer: qwen2.5-instruct
files:
  chat_template.jinja: >-
    {% for m in messages %}{{ '<|im_start|>' + m.role + ' ' + m.content + '<|im_end|>\\n' }}{% endfor %}
    {%- if add_generation_prompt %}{{ '<|im_start|>assistant ' }}{% endif %}
```

## Use instead
```yaml
tokenizer: qwen2.5-instruct
files:
  chat_template.jinja: >-
    {% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
    {%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
```

## Fix safety
The template of the published model is right for a chat model. A base model that is trained on millions of chats may
learn any format: then serve it with the same one.

## References
- opendatalab/MinerU#2676
- hiyouga/LlamaFactory#7306
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import is_named_as_base_model
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE
from truetune.checks.rule import DataRule
from truetune.checks.template.evidence.turn_marks_of_published_chat_models import (
    PublishedMarks,
    find_published_marks,
)
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

if TYPE_CHECKING:
    from tokenizers import AddedToken

NEXT_QUESTION = "Is it open on Sundays?"
NEXT_ANSWER = "From noon to four."
# A line end that was escaped twice is two characters of text.
WHITE_SPACE = re.compile(r"\s|\\[nrt]")
MAX_ROLE_CHARACTERS = 20
"""Characters of a word for a role; longer texts are a form of their own"""
# Marks as templates write them: <|user|>, <start_of_turn>, [INST], with fullwidth bars too.
MARK = re.compile(r"<[|｜]?[^<>\s]{2,40}?[|｜]?>|\[/?[A-Z_]{3,20}\]")


class Difference(NamedTuple):
    """What the template writes at one place, and what the published one does."""

    where: str
    written: str
    published: str


class TemplateMarksDifferFromPublished(DataRule):
    code = "TPL017"
    fault = Fault.CHAT_TEMPLATE_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without a template, and where its turns are those of no family that is known."""
        if self.probes.template is None:
            return NO_TEMPLATE
        if (
            self._published_marks_of_tokenizer is None
            or self._texts_around_turns_beside_published is None
        ):
            return Unmet(
                "it is about templates with the control tokens of a published family, and this has none"
            )
        return None

    def measurement_if_clean(self) -> str:
        """Which published turns were compared."""
        marks = self._published_marks_of_tokenizer
        return (
            f"between a question and its answer is {marks.text_between_question_and_answer!r}"
            if marks
            else ""
        )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_misspelt_marks()
        yield from self._findings_on_flags()
        differences = self._differences
        if differences and self._published_marks_of_tokenizer:
            first, is_base = differences[0], self._is_model_named_as_base()
            yield self.finding(
                f"the template writes {first.written!r} {first.where}, but the published template of"
                f" {self._published_marks_of_tokenizer.models} writes {first.published!r}",
                f"write {first.published!r} there: copy chat_template.jinja from the published model"
                + ("; or serve this base with the template that trains it" if is_base else ""),
                severity="info" if is_base else "warning",
                evidence=[
                    f"{one.where}: {one.written!r}, published {one.published!r}"
                    for one in differences
                ],
            )

    def _is_model_named_as_base(self) -> bool:
        """Says a name of the model that it is a base, which has learned no form of turns yet?"""
        folder = self.tokenizer.folder.resolve()
        # The hub's cache has models--OWNER--NAME/snapshots/REVISION.
        cached = folder.parent.parent.name.replace("--", "/")
        return any(map(is_named_as_base_model, (self.spec.model or "", folder.name, cached)))

    def _added_tokens_by_text(self, texts: Collection[str]) -> dict[str, AddedToken]:
        """The added tokens of the tokenizer that have one of these texts."""
        added = self.tokenizer.backend.get_added_tokens_decoder().values()
        return {token.content: token for token in added if token.content in texts}

    def _finding_on_stripping_tokens(self, names: list[str]) -> Finding:
        """The finding on tokens that take the white space next to them away."""
        return self.finding(
            f"{', '.join(names)} strip the white space next to them (lstrip, rstrip): what the template"
            " writes there never becomes a token",
            "set lstrip and rstrip to false for these tokens in tokenizer.json and tokenizer_config.json, as in"
            " the published tokenizer",
            severity="warning",
        )

    def _finding_on_tokens_as_single_words(self, names: list[str]) -> Finding:
        """The finding on tokens that are tokens only where they stand alone."""
        return self.finding(
            f"{', '.join(names)} are found only where blanks or line ends surround them (single_word): right after"
            " a word they are split into pieces, so turns begin or end without their token",
            "set single_word to false for these tokens in tokenizer.json and tokenizer_config.json",
        )

    def _findings_on_flags(self) -> Iterator[Finding]:
        """Findings on tokens of the family whose flags are not the published ones."""
        marks = self._published_marks_of_tokenizer
        if marks is None:
            return
        tokens = self._added_tokens_by_text(marks.tokens)
        stripping = [name for name, token in tokens.items() if token.lstrip or token.rstrip]
        if stripping and not marks.are_stripped:
            yield self._finding_on_stripping_tokens(stripping)
        in_single_words = [name for name, token in tokens.items() if token.single_word]
        if in_single_words:
            yield self._finding_on_tokens_as_single_words(in_single_words)
        if not tokens[marks.end_token].special:
            yield self.finding(
                f"{marks.end_token!r}, which ends each answer, is not a special token: skip_special_tokens leaves it"
                " in the text that users see",
                f"set special: true for {marks.end_token} in tokenizer.json and tokenizer_config.json",
                severity="warning",
            )
        if self.tokenizer.config.get("split_special_tokens") is True:
            yield self.finding(
                "tokenizer_config.json sets split_special_tokens: the control tokens of a rendered chat are split"
                " into pieces, so no turn begins or ends",
                "set split_special_tokens to false in tokenizer_config.json",
            )

    def _findings_on_misspelt_marks(self) -> Iterator[Finding]:
        """A finding on the marks that only resemble tokens."""
        misspelt = self._misspelt_marks
        if misspelt:
            written, token = next(iter(misspelt.items()))
            yield self.finding(
                f"the template writes {written!r}, which is not a token: the tokenizer's is {token!r}",
                f"replace {written!r} with {token!r} in the chat template (copy it from tokenizer.json)",
                evidence=[
                    (f"{mark!r} should be the token {own!r}") for mark, own in misspelt.items()
                ],
            )

    @cached_property
    def _texts_of_added_tokens(self) -> frozenset[str]:
        """The texts of all added tokens."""
        added = self.tokenizer.backend.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added)

    @cached_property
    def _published_marks_of_tokenizer(self) -> PublishedMarks | None:
        """The published turns with the control tokens of this tokenizer."""
        return find_published_marks(self._texts_of_added_tokens)

    @cached_property
    def _render_two_questions_and_answers(self) -> str | None:
        """Two questions with their answers, as the template writes them."""
        chat = alternating_chat(QUESTION, ANSWER, NEXT_QUESTION, NEXT_ANSWER)
        text = self.probes.text(chat)
        return text if text is not None and _are_questions_and_answers_in_order(text) else None

    @cached_property
    def _texts_around_turns_beside_published(self) -> tuple[Difference, ...] | None:
        """What is before, between and after the turns, beside what is published; None of another form."""
        text, marks = self._render_two_questions_and_answers, self._published_marks_of_tokenizer
        if text is None or marks is None:
            return None
        before = text[: text.index(QUESTION)]
        bridge = _text_between(text, QUESTION, ANSWER)
        back = _text_between(text, ANSWER, NEXT_QUESTION)
        opening = before[max(0, before.rfind(marks.tokens[0])) :]
        gaps = (
            Difference("before a question", opening, marks.question_header),
            Difference(
                "between a question and its answer", bridge, marks.text_between_question_and_answer
            ),
            Difference(
                "between an answer and the next question",
                back,
                marks.text_between_answer_and_question,
            ),
        )
        has_same_marks = all(
            _marks_in(one.written, marks)[: len(_marks_in(one.published, marks))]
            == _marks_in(one.published, marks)
            for one in gaps
        )
        return gaps if has_same_marks else None

    @property
    def _differences(self) -> list[Difference]:
        """The places where the template writes something else, with the same marks."""
        return [
            Difference(one.where, one.written[: len(one.published) + 8], one.published)
            for one in self._texts_around_turns_beside_published or ()
            if not one.written.startswith(one.published)
            and (self._differs_only_in_space_or_role(one) or self._has_special_tokens_added(one))
            and not self._do_texts_begin_with_same_tokens(one)
        ]

    def _differs_only_in_space_or_role(self, gap: Difference) -> bool:
        """Differ the two in white space alone, or in the word for a role alone?"""
        marks = self._published_marks_of_tokenizer
        if marks is None:
            return False
        written, published = (WHITE_SPACE.sub("", text) for text in (gap.written, gap.published))
        if written.startswith(published):
            return True
        words_written, words_published = (
            re.split("|".join(map(re.escape, marks.tokens)), text) for text in (written, published)
        )
        # Another word for a role: one word at each place, no text of its own and no token of another form.
        return len(words_written) == len(words_published) and all(
            len(word) <= MAX_ROLE_CHARACTERS and word not in self._texts_of_added_tokens
            for word in words_written
        )

    def _has_special_tokens_added(self, gap: Difference) -> bool:
        """Is it the published text but for further control tokens, between turns?"""
        marks = self._published_marks_of_tokenizer
        if marks is None or gap.where == "before a question":
            return False
        written = gap.written
        for id, token in self.tokenizer.backend.get_added_tokens_decoder().items():
            if id in self.tokenizer.control and token.content not in marks.tokens:
                written = written.replace(token.content, "")
        return written != gap.written and written.startswith(gap.published)

    def _do_texts_begin_with_same_tokens(self, gap: Difference) -> bool:
        """Do the texts begin with the same tokens? Some marks take the white space beside them (`rstrip`)."""
        written, published = (
            self.tokenizer.backend.encode(text, add_special_tokens=False).ids
            for text in (gap.written, gap.published)
        )
        return written[: len(published)] == published

    @cached_property
    def _misspelt_marks(self) -> dict[str, str]:
        """Marks of the template that are no token -> the token that they resemble."""
        if self._render_two_questions_and_answers is None:
            return {}
        by_letters = {
            _mark_without_bars_and_brackets(token): token for token in self._texts_of_added_tokens
        }
        marks = dict.fromkeys(MARK.findall(self._render_two_questions_and_answers))
        return {
            mark: by_letters[_mark_without_bars_and_brackets(mark)]
            for mark in marks
            if mark not in self._texts_of_added_tokens
            and _mark_without_bars_and_brackets(mark) in by_letters
            and len(self.tokenizer.backend.encode(mark, add_special_tokens=False).ids) > 1
        }


def _are_questions_and_answers_in_order(text: str) -> bool:
    """Does a text hold both questions and both answers, their first places in order?"""
    places = [text.find(part) for part in (QUESTION, ANSWER, NEXT_QUESTION, NEXT_ANSWER)]
    return -1 not in places and places == sorted(places)


def _text_between(text: str, first: str, second: str) -> str:
    """What is between two parts of a text."""
    return text[text.index(first) + len(first) : text.index(second)]


def _marks_in(text: str, marks: PublishedMarks) -> list[str]:
    """The control tokens of a family in a text, in their order."""
    found = [
        (match.start(), token)
        for token in marks.tokens
        for match in re.finditer(re.escape(token), text)
    ]
    return [token for _, token in sorted(found)]


def _mark_without_bars_and_brackets(mark: str) -> str:
    """A mark without its bars, brackets and underscores, in lower case; a slash tells the end of a pair."""
    return "".join(char for char in mark.casefold() if char.isalnum() or char == "/")
