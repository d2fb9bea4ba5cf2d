"""Tokenized rows were made with another chat template.

## What it does
Looks for the headers that this template writes, and for control tokens that it never writes. It also decodes a sample
of at most 256 rows into conversations, renders them with this template, and compares the ids. Missing headers are an
error if foreign control tokens are found, or the headers occur as plain text. Otherwise it is a warning.

## Why it is bad
The model learns one chat format and is served with another. It answers worse, or does not stop, and its loss is as low
as usual.

## Example
```yaml
make: [healthy, {ids: of-another-template}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize the rows again with the template that will be served, or serve the old one.

## References
- huggingface/trl#3468, huggingface/trl#3140, huggingface/trl#1233
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.render.rendering import Source
from truetune.tokenized.tokenized_data import MIN_STRANGE_SHARE

# Chosen, not measured. Read back from ids, a conversation loses what its template drops (the
# reasoning of earlier turns, a date), so that some differ under the right template as well; another
# template differs in nearly all.
MIN_CONVERSATIONS, MIN_CONVERSATION_SHARE = 2, 0.1
"""Conversations that render to other ids, and their share of those that were read back"""


class TokenRowsOfAnotherTemplate(TokenizedRule):
    code = "IDS004"
    fault = Fault.PREPARED_ROWS_OUT_OF_DATE
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        summary, trip = self.subject.summary, self.subject.round_trip
        if len(trip.strange) >= MIN_STRANGE_SHARE * trip.read > 0 or summary.beyond.count:
            return  # another tokenizer made the rows
        has_headers = bool(self.subject.placer.layout.headers)
        if (
            self.subject.is_plain_text
            or not has_headers
            or not self._trainer_uses_template_of_model()
        ):
            return
        if not summary.chats:
            yield self._finding_on_missing_headers()
        elif len(trip.differ) >= max(MIN_CONVERSATIONS, MIN_CONVERSATION_SHARE * trip.rendered):
            yield self.finding(
                f"{len(trip.differ):,} of {trip.rendered:,} decoded conversations render to other ids with this"
                " template",
                "tokenize the rows again with this template (truetune encode), or give the one that made them"
                " (--template FILE) and serve with it",
                severity="warning",
                cases=[Case(text, origin) for origin, text in trip.differ],
                count=len(trip.differ),
                total=trip.rendered,
            )

    def _finding_on_missing_headers(self) -> Finding:
        """The finding that no turn of this template is in the rows: its headers are there as plain
        text, or not at all.
        """
        summary, foreign = self.subject.summary, self.subject.unexplained_control_tokens()
        how = "never occur in the rows"
        if summary.headers_as_text:
            how = "are in the rows as plain text"
        evidence = []
        if foreign:
            evidence = [f"control tokens that the template does not write: {', '.join(foreign)}"]
        return self.finding(
            f"the headers that this chat template writes ({self._answer_header()!r}) {how}: another template made"
            " them",
            "tokenize the rows again with this template (truetune encode), or give the one that made them"
            " (--template FILE) and serve with it",
            # Without either sign the rows may be plain text with stop tokens, which no template
            # wrote.
            severity="error" if foreign or summary.headers_as_text else "warning",
            evidence=evidence,
        )

    def _trainer_uses_template_of_model(self) -> bool:
        """Does the trainer render by the template of the model?

        False for a trainer with templates of its own, which differ on purpose, such as
        LLaMA-Factory.
        """
        return self.subject.trainer.template.value != "own"

    def _answer_header(self) -> str:
        """The header of an answer, else the first one that the template writes."""
        headers = self.subject.placer.layout.headers
        answers = [header.text for header in headers if header.role is Source.ASSISTANT]
        return (answers or [headers[0].text])[0].decode("utf-8", "replace")

    def measurement_if_clean(self) -> Measurement:
        """The number of conversations that render to other ids."""
        trip = self.subject.round_trip
        return make_count_measurement(
            "conversations that render to other ids", len(trip.differ), trip.rendered
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where there is no template, the rows are plain text, the trainer has templates
        of its own, or no row could be read back as a conversation.
        """
        if not self.subject.placer.layout.headers:
            return super().unmet() or Unmet(
                "the tokenizer has no chat template", "give one with --template"
            )
        if self.subject.is_plain_text:
            return Unmet("it is about conversations, and the rows are plain text")
        if not self._trainer_uses_template_of_model():
            return Unmet(
                f"{self.subject.trainer.name_in_reports} renders rows with its own templates"
            )
        if not self.subject.round_trip.rendered:
            return super().unmet() or Unmet("no row could be decoded into a conversation")
        return super().unmet()
