"""Tokenized rows begin with two BOS tokens, or without the one that this tokenizer adds.

## What it does
Looks at the first two tokens of each row. A BOS is expected if the tokenizer adds it to plain text or the template
writes it. Two are an error, none is a warning.

## Why it is bad
Two BOS tokens differ from what is served, and large models answer worse after them. Models that were trained with a BOS
in every row (Gemma, Llama 3) need it. The loss shows neither.

## Example
```yaml
tokenizer: bos
make: [healthy, {ids: two-bos}]
```

## Use instead
```yaml
tokenizer: bos
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize rendered text with `add_special_tokens=False`, or remove BOS from the template, and
tokenize the rows again.

## References
- huggingface/trl#1400, vllm-project/vllm#16976
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

# Chosen, not measured. Rows that a limit split begin inside a text, and of long-tailed data few
# rows are that long; an encoder that wrote no BOS wrote none in any row. Lower, split rows would
# warn; higher, a mix of two encoders passes.
MIN_ROWS, MIN_ROW_SHARE = 2, 0.05
"""Rows without BOS, and their share"""
# Chosen, not measured. Joined and cut, all rows but the last have one length; padded rows too, but
# these begin with BOS.
WRAPPED_SHARE = 0.9
"""Share of rows of one length that says that texts were joined and cut"""


class BosWrongInTokenRows(TokenizedRule):
    code = "IDS013"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("good-here-bad-there", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if summary.two_bos.count:
            yield self.finding(
                f"{summary.two_bos.count:,} of {summary.rows:,} rows begin with two BOS tokens",
                "tokenize the rendered text again with add_special_tokens=False",
                cases=cases_of_row_places(summary.two_bos),
                count=summary.two_bos.count,
                total=summary.rows,
            )
        lacking = summary.without_bos.count
        if (
            self._is_bos_expected()
            and lacking >= MIN_ROWS
            and lacking >= MIN_ROW_SHARE * summary.rows
            and not self._were_texts_joined_and_cut()
        ):
            yield self.finding(
                f"{lacking:,} of {summary.rows:,} rows begin without the BOS that this tokenizer or its template"
                " adds",
                "tokenize the rows again with this tokenizer's BOS (truetune encode does that)",
                severity="warning",
                cases=cases_of_row_places(summary.without_bos),
                count=lacking,
                total=summary.rows,
            )

    def _is_bos_expected(self) -> bool:
        """Do the template or the tokenizer write BOS before each row of this kind?"""
        probes = self.subject.probes
        bos = probes.tokenizer.special.get("bos")
        if bos is None:
            return False
        text = probes.text(alternating_chat(QUESTION, ANSWER)) or ""
        # A template that opens every turn with BOS (Llama 2's does) says nothing about the first
        # one of a row.
        writes = text.startswith(bos.token) and not self.subject.placer.layout.bos_opens_turns
        return writes or (probes.tokenizer.adds_bos and self.subject.is_plain_text)

    def _were_texts_joined_and_cut(self) -> bool:
        """Were texts joined and cut into rows of one length? Then most rows begin inside a document."""
        summary = self.subject.summary
        return (
            summary.lengths.max() >= WRAPPED_SHARE * summary.rows
            and summary.begins_with_bos < summary.rows
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows that begin with BOS."""
        summary = self.subject.summary
        return make_count_measurement(
            "rows that begin with BOS", summary.begins_with_bos, summary.rows
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the tokenizer has no BOS."""
        if "bos" not in self.subject.probes.tokenizer.special:
            return Unmet("it is about BOS, and the tokenizer has none")
        return super().unmet()
