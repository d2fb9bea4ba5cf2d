"""A special token's id in generation_config.json or config.json is a piece of ordinary text.

## What it does
Looks up each id that generation_config.json and config.json give for BOS, EOS, pad, and forced tokens in the
tokenizer's vocabulary, and reports those that are no added token there, or that the vocabulary does not have. It is a
warning where only BOS, pad, or the token that is forced at a limit is wrong.

## Why it is bad
The files give tokens by number. A number of another vocabulary (`2` is EOS in Llama 2, and `#` in Qwen) ends answers
in the middle, fills them up with text, or never occurs, so that nothing stops.

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
Safe where the file belongs to this tokenizer: write the id that the tokenizer has for the token.

## References
- salesforce/CodeGen#32, Vision-CAIR/MiniGPT-4#339, huggingface/transformers#7275
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import DataRule
from truetune.checks.tokenizer.evidence.token_ids_in_files import (
    TokenIdStatement,
    list_token_id_statements,
)


class SpecialIdIsOrdinaryText(DataRule):
    code = "TOK008"
    symptoms = ("garbage-output", "never-stops")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where no file gives an id."""
        if next(list_token_id_statements(self.tokenizer), None) is None:
            return Unmet(
                "it is about token ids in generation_config.json and config.json, and there are none"
            )
        return None

    def figure(self) -> Measurement:
        """The number of ids that are ordinary text, none."""
        stated = list(list_token_id_statements(self.tokenizer))
        return count_measurement("ids of special tokens that are ordinary text", 0, len(stated))

    def findings(self) -> Iterator[Finding]:
        stated = list(list_token_id_statements(self.tokenizer))
        special = self._special_ids()
        wrong = [statement for statement in stated if statement.id not in special]
        if not wrong:
            return
        first = min(wrong, key=lambda one: one.key.severity != "error")
        yield self.finding(
            f"{first.key.name} of {first.file} is {first.id:,}, {self._describe(first.id)}:"
            f" {first.key.consequence}",
            f"write the id of this tokenizer's token into {first.file}{self._own_id(first)}",
            severity=first.key.severity,
            cases=[
                Case(f"{one.key.name} {one.id}: {self._describe(one.id)}", file=one.file)
                for one in wrong
            ],
            count=len(wrong),
            total=len(stated),
        )

    def _special_ids(self) -> set[int]:
        """The ids of added tokens, and of those that the tokenizer names (`<s>` of older vocabularies)."""
        named = {token.id for token in self.tokenizer.special.values()}
        return named | self.tokenizer.backend.get_added_tokens_decoder().keys()

    def _describe(self, id: int) -> str:
        """What the id is in this vocabulary."""
        token = self.tokenizer.backend.id_to_token(id)
        if token is None:
            return f"which no token of the vocabulary has ({self.tokenizer.vocabulary:,} ids)"
        return f"the ordinary token {token!r}"

    def _own_id(self, statement: TokenIdStatement) -> str:
        """The id that the tokenizer gives for the same name, for the remedy; "" where it names none."""
        name = statement.key.name.removesuffix("_token_id").removeprefix("forced_")
        own = self.tokenizer.special.get(name)
        return f": {own.token} is {own.id}" if own is not None else ""
