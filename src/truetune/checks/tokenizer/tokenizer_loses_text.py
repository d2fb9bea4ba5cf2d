"""The tokenizer does not decode to the text that it encoded.

## What it does
Encodes and decodes short texts (capitals, white space, line breaks, accents, digits, code, other scripts) and reports
those that come back changed. It judges only vocabularies that have a token for each byte, which lose nothing by design.
It is an error, or a warning if only other scripts, full-width characters or emoji change. The answers of the rows are
tried as well, where some come back changed: added tokens that strip white space lose the indentation of code.

## Why it is bad
What is lost before the model sees it can be neither learned nor generated: a tokenizer that lowercases never writes a
name, one that drops line breaks never writes code. It happens when a tokenizer.json is rebuilt or edited (a normalizer,
a pre-tokenizer or the decoder of another tokenizer), and nothing fails.

## Example
```yaml
files:
  tokenizer.json: {normalizer: {type: Lowercase}}
```

## Use instead
```yaml
files:
  tokenizer.json: {version: "1.0"}
```

## Fix safety
Restore tokenizer.json as it was published. A model that was trained with this one has to be trained again.

## References
- huggingface/transformers#21161, bigcode-project/starcoder#163, huggingface/transformers#36325
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

BYTE_TOKENS = (("\u010a", "\u0120", "A"), ("<0x0A>", "<0x20>", "<0x41>"))
"""A line break, a blank and a letter, as byte-level vocabularies and those that fall back to bytes write them"""
# Each text holds one thing that tokenizers are known to lose; all are in normal form C, which many apply.
PROBE_TEXTS = {
    "capital letters": "Ask Anna about the NASA report.",
    "several blanks": "a  b    c",
    "line breaks": "first line\n\nsecond line\n",
    "indented code": "def f(x):\n    if x:\n        return 1\n",
    "a tab": "name\tvalue",
    "accents": "Crème brûlée, naïve, Ångström",
    "digits": "0123456789 3.14 1,000",
    "punctuation": "«Well», she said: (it's) 50 % \u2013 isn't it? {\"a\": [1, 2]} <b>&amp;</b>",
    "Chinese": "今天天气很好。",
    "Arabic": "مرحبا بالعالم",
    "an emoji": "ok 👍🏽",
    # Normal form KC writes all of these otherwise: in Chinese and Japanese, the usual comma and question mark.
    "full-width characters": "价格：５０元，是吗？ ½ ① ﬁ",
}
# Answers that are tried. Chosen, not measured: a tokenizer that loses something of rows loses it in most of them.
MAX_ANSWERS = 300
# Of the tried answers. Fewer hold an odd character that a normalizer is there for.
MIN_CHANGED_ANSWERS = 3
MIN_CHANGED_SHARE = 0.02
SHOWN_AROUND = 12
"""Characters that are shown before and behind the first difference"""
OTHER_SCRIPTS = ("Chinese", "Arabic", "an emoji", "full-width characters")


class TokenizerLosesText(DataRule):
    code = "TOK011"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers = self.changed_answers = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Encode and decode the first answers of the rows."""
        if self.setup.are_tokens_single_bytes:
            return
        for row in batch.rows:
            for answer in _answers_of_row(row):
                if self.answers == MAX_ANSWERS:
                    return
                self.answers += 1
                self._try_answer(answer, row)

    def _try_answer(self, answer: str, row: Conversation) -> None:
        """Note an answer that comes back changed."""
        # Normal form C is what many tokenizers apply; it looks the same.
        wanted = unicodedata.normalize("NFC", answer)
        decoded = unicodedata.normalize("NFC", self._encode_and_decode(answer))
        if is_same_text(wanted, decoded):
            return
        self.changed_answers += 1
        if len(self.cases) < MAX_CASES:
            self.cases.append(Case(_describe_first_difference(wanted, decoded), origin=row.origin))

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer is not available, or its vocabulary does not spell every text."""
        if self.setup.are_tokens_single_bytes:
            return Unmet("it is about the tokenizer, and it is not available")
        if not self._has_token_for_each_byte():
            return Unmet("it is about vocabularies that have a token for each byte")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of texts that come back changed, none."""
        return make_count_measurement("texts that come back changed", 0, len(PROBE_TEXTS))

    def findings(self) -> Iterator[Finding]:
        if not self._has_token_for_each_byte():
            return
        changed = {
            kind: (text, decoded)
            for kind, text in PROBE_TEXTS.items()
            if not is_same_text(text, decoded := self._encode_and_decode(text))
        }
        if not changed:
            yield from self._findings_on_answers()
            return
        kind, (text, decoded) = next(iter(changed.items()))
        # A vocabulary of one language may lack other scripts; one that loses Latin letters is broken.
        loses_latin = any(kind not in OTHER_SCRIPTS for kind in changed)
        yield self.finding(
            f"{len(changed)} of {len(PROBE_TEXTS)} short texts come back changed, for example"
            f" {kind}: {text!r} becomes {decoded!r}",
            "restore tokenizer.json as it was published; its normalizer, pre_tokenizer and decoder must equal the"
            " base model's",
            severity="error" if loses_latin else "warning",
            cases=[
                Case(f"{kind}: {text!r} becomes {decoded!r}", file="tokenizer.json")
                for kind, (text, decoded) in changed.items()
            ],
            count=len(changed),
            total=len(PROBE_TEXTS),
        )

    def _findings_on_answers(self) -> Iterator[Finding]:
        """The finding on answers of the rows that come back changed, though the short texts do not."""
        least = max(MIN_CHANGED_ANSWERS, MIN_CHANGED_SHARE * self.answers)
        if self.changed_answers < least:
            return
        stripping = [
            token.content
            for token in self.tokenizer.backend.get_added_tokens_decoder().values()
            if token.lstrip or token.rstrip
        ]
        yield self.finding(
            f"{self.changed_answers} of {self.answers} answers come back changed when they are encoded and decoded, so"
            " the model never learns what is lost",
            "set lstrip and rstrip of these added tokens to false, and tokenize the rows again"
            if stripping
            else "restore tokenizer.json as it was published, and tokenize the rows again",
            severity="warning",
            evidence=[f"added tokens that strip white space: {', '.join(stripping[:MAX_CASES])}"]
            if stripping
            else [],
            cases=self.cases,
            count=self.changed_answers,
            total=self.answers,
        )

    def _has_token_for_each_byte(self) -> bool:
        """Can the vocabulary spell every text? BERT's and T5's lose capitals or line breaks by design."""
        known = self.tokenizer.backend.token_to_id
        return any(all(known(token) is not None for token in tokens) for tokens in BYTE_TOKENS)

    def _encode_and_decode(self, text: str) -> str:
        ids = self.tokenizer.backend.encode(text, add_special_tokens=False).ids
        return self.tokenizer.backend.decode(ids, skip_special_tokens=False)


def is_same_text(text: str, decoded: str) -> bool:
    """Is a text the same after encoding and decoding? A blank that SentencePiece puts in front is no loss."""
    return decoded in (text, f" {text}")


def _answers_of_row(row: Conversation) -> Iterator[str]:
    """The answers of a row that are text."""
    for message in row.messages:
        content = message.get("content")
        if message.get("role") == "assistant" and isinstance(content, str):
            yield content
    if isinstance(row.completion, str):
        yield row.completion


def _describe_first_difference(text: str, decoded: str) -> str:
    """Both texts around the first character that differs."""
    at = next(
        (place for place, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b),
        min(len(text), len(decoded)),
    )
    begin, end = max(0, at - SHOWN_AROUND), at + SHOWN_AROUND
    return f"{text[begin:end]!r} becomes {decoded[begin:end]!r}"
