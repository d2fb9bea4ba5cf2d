"""A special token's id in generation_config.json or config.json is a piece of ordinary text.

## What it does
Looks up each id that generation_config.json and config.json give for BOS, EOS, pad and forced tokens in the tokenizer's
vocabulary. It reports those that are not an added token there, or that the vocabulary does not have. An EOS that is a
text token also counts if answers of the rows contain it before their end, such as `</think>`. It is an error for EOS,
and a warning if only BOS, pad, or the token forced at a limit is wrong.

The tokenizer's own pad token also counts, as a warning, if it is a piece of text (`!`, which is id 0 in many
vocabularies); the finding then tells how many tokens in the loss are that token.

## Why it is bad
The files give tokens by number. A number from another vocabulary (`2` is EOS in Llama 2, but `#` in Qwen) ends answers
in the middle, pads them with text, or never occurs, so that nothing stops. If padding is masked by its id, every such
token of an answer is left out of the loss, and code that looks for the last token that is not padding finds another
one.

## Example
```yaml
files:
  generation_config.json: {eos_token_id: [3, 65]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  generation_config.json: {eos_token_id: [3, 0]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe if the file belongs to this tokenizer: write the id that the tokenizer has for the token.

## References
- salesforce/CodeGen#32, Vision-CAIR/MiniGPT-4#339, huggingface/transformers#7275
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from truetune.checks.base_of_rules_on_answer_texts import AnswerText, learned_answers_of_row
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.tokenizer.evidence.token_ids_named_by_model_configs import (
    TokenIdStatement,
    list_token_id_statements,
)
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.choose_pad_token import choose_pad_token, pad_token_if_it_encodes_text
from truetune.render.tokenizer import SpecialToken

# Chosen, not measured: one answer in ten that ends early is no slip of its text.
MIN_ERROR_ONE_IN = 10
END_OF_REASONING = "</think>"


class SpecialIdIsOrdinaryText(DataRule):
    code = "TOK008"
    fault = Fault.TOKENIZER_FILES_CONTRADICT
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        control = setup.tokenizer.control
        # Control tokens in contents are another fault: `special-token-in-content`.
        self.stops = {
            statement: token
            for statement in list_token_id_statements(setup.tokenizer)
            if statement.key.name == "eos_token_id" and statement.id not in control
            if (token := setup.tokenizer.backend.id_to_token(statement.id)) is not None
        }
        self.answers = 0
        self.held: Counter[TokenIdStatement] = Counter()
        """Answers that hold the stop token before their end"""
        self.cases: list[Case] = []
        self.pad = pad_token_if_it_encodes_text(setup.tokenizer)
        self.supervised = self.masked = 0
        """Tokens in the loss, and those of them that are the pad token"""
        self.pad_cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch that hold a stop token or the pad token as a part of their text."""
        if self.pad is not None:
            self._count_supervised_pad_tokens(batch, self.pad)
        if not self.stops:
            return
        for row in batch.rows:
            for answer in learned_answers_of_row(row):
                self.answers += 1
                for statement, token in self.stops.items():
                    if not _is_token_inside_answer_text(token, answer, row):
                        continue
                    self.held[statement] += 1
                    if len(self.cases) < MAX_CASES:
                        self.cases.append(Case(f"the answer contains {token!r}", row.origin))

    def _count_supervised_pad_tokens(self, batch: Batch, pad: SpecialToken) -> None:
        """Count the tokens in the loss that are the pad token."""
        is_pad = batch.supervised & (batch.ids == pad.id)
        self.supervised += int(batch.supervised.sum())
        self.masked += int(is_pad.sum())
        for place in np.flatnonzero(is_pad)[: MAX_CASES - len(self.pad_cases)].tolist():
            self.pad_cases.append(case_at_token(batch, place, f"{pad.token!r} in the answer"))

    def unmet(self) -> Unmet | None:
        """Unmet where no file gives an id, and there is no pad token."""
        has_pad = "pad" in self.tokenizer.special
        if not has_pad and next(list_token_id_statements(self.tokenizer), None) is None:
            return Unmet(
                "it is about the pad token, and token ids in generation_config.json and config.json, and there are none"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of ids that are ordinary text, none."""
        stated = len(list(list_token_id_statements(self.tokenizer)))
        stated += "pad" in self.tokenizer.special
        return make_count_measurement("ids of special tokens that are ordinary text", 0, stated)

    def findings(self) -> Iterator[Finding]:
        if self.pad is not None:
            yield self._finding_on_pad_token(self.pad)
            return
        stated = list(list_token_id_statements(self.tokenizer))
        special = self._special_ids()
        wrong = [statement for statement in stated if statement.id not in special]
        if not wrong:
            yield from self._findings_on_stops_in_answers()
            return
        first = min(wrong, key=lambda one: one.key.severity != "error")
        yield self.finding(
            f"{first.key.name} of {first.file} is {first.id:,}, {self._describe_id_in_vocabulary(first.id)}:"
            f" {first.key.consequence}",
            f"set it to the id of this tokenizer's token in {first.file}{self._tokenizer_id_of_same_name(first)}",
            severity=first.key.severity,
            cases=[
                Case(
                    f"{one.key.name} {one.id}: {self._describe_id_in_vocabulary(one.id)}",
                    file=one.file,
                )
                for one in wrong
            ],
            count=len(wrong),
            total=len(stated),
        )

    def _finding_on_pad_token(self, pad: SpecialToken) -> Finding:
        """The finding that the pad token is a piece of text."""
        better, reason = choose_pad_token(self.tokenizer, self.probes.stops)
        held = (
            f"; {self.masked:,} of {self.supervised:,} tokens in the loss are this token, and lose their label if"
            " padding is masked by id"
            if self.masked
            else ""
        )
        return self.finding(
            f"the pad token {pad.token!r} ({pad.id:,}) is a piece of ordinary text{held}",
            f'set pad_token to "{better.token}" ({better.id}): {reason}' if better else reason,
            severity="warning",
            evidence=[
                "reward models and classifiers, which look for the last token that is not padding by its id, find"
                " the wrong one"
            ],
            cases=self.pad_cases,
            count=self.masked or None,
            total=self.supervised or None,
        )

    def _findings_on_stops_in_answers(self) -> Iterator[Finding]:
        """A finding on the stop token that most answers hold."""
        if not self.held:
            return
        ((statement, count),) = self.held.most_common(1)
        token = self.stops[statement]
        yield self.finding(
            f"{statement.key.name} in {statement.file} contains {statement.id:,}, {token!r}, which {count:,} of"
            f" {self.answers:,} answers contain before their end: generation stops there",
            f"remove {statement.id} from {statement.key.name} in {statement.file}",
            severity="error" if count * MIN_ERROR_ONE_IN >= self.answers else "warning",
            cases=self.cases,
            count=count,
            total=self.answers,
        )

    def _special_ids(self) -> set[int]:
        """The ids of added tokens, and of those that the tokenizer names (`<s>` of older vocabularies)."""
        named = {token.id for token in self.tokenizer.special.values()}
        return named | self.tokenizer.backend.get_added_tokens_decoder().keys()

    def _describe_id_in_vocabulary(self, id: int) -> str:
        """What the id is in this vocabulary."""
        token = self.tokenizer.backend.id_to_token(id)
        if token is None:
            return f"which no token of the vocabulary has ({self.tokenizer.vocabulary:,} ids)"
        return f"the ordinary token {token!r}"

    def _tokenizer_id_of_same_name(self, statement: TokenIdStatement) -> str:
        """The id that the tokenizer gives for the same name, for the remedy; "" where it names none."""
        name = statement.key.name.removesuffix("_token_id").removeprefix("forced_")
        own = self.tokenizer.special.get(name)
        return f": {own.token} is {own.id}" if own is not None else ""


def _is_token_inside_answer_text(token: str, answer: AnswerText, row: Conversation) -> bool:
    """Does an answer hold a token as a part of its text, before its end?"""
    if token in answer.text.rstrip().removesuffix(token):
        return True
    # Templates write the reasoning of a message between the tokens for it.
    if token != END_OF_REASONING or answer.message is None:
        return False
    return bool(row.messages[answer.message].get("reasoning_content"))
