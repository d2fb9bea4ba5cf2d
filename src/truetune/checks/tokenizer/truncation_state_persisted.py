"""tokenizer.json contains a truncation or padding setting that a run left in it.

## What it does
Checks whether `truncation` and `padding` in tokenizer.json are null, and counts the examples that would be cut. It is
an error if some would be.

## Why it is bad
A call with `truncation=True` or `padding=...` changes a fast tokenizer, and `save_pretrained` saves that state.
Programs that read tokenizer.json directly then cut or pad every prompt.

## Example
```yaml
files:
  tokenizer.json:
    truncation: {direction: Right, max_length: 5, strategy: LongestFirst, stride: 0}
```

## Use instead
```yaml
files:
  tokenizer.json: {truncation: null}
```

## Fix safety
Safe: set both to null in tokenizer.json, or call `tokenizer.backend_tokenizer.no_truncation()` and `.no_padding()`
before saving.

## References
- vllm-project/llm-compressor#2917, huggingface/datasets#5985, MinishLab/model2vec#374
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact, SeverityForFact
from truetune.encoding.batch import Batch
from truetune.settings.run_spec import Severity


class TruncationStatePersisted(DataRule):
    code = "TOK007"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("good-here-bad-there",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_saved_file = True
    judges_without_rows = True
    by_trainer = (
        SeverityByFact(
            "file_truncation",
            {
                "ignored": SeverityForFact(
                    "info",
                    "{trainer} switches it off when it tokenizes; the `tokenizers` library does not",
                ),
                "removed": MOOT,
                None: SeverityForFact(
                    "warning",
                    "transformers' tokenizers switch it off, the `tokenizers` library does not",
                ),
            },
        ),
    )
    examples = longer = 0
    """Of the rows, where there are some"""

    def add_batch(self, batch: Batch) -> None:
        """Count the examples, and those longer than the truncation that tokenizer.json holds."""
        if self.tokenizer.truncation is not None:
            self.examples += len(batch.examples)
            self.longer += int((batch.lengths > self.tokenizer.truncation["max_length"]).sum())

    def measurement_if_clean(self) -> str:
        """That tokenizer.json holds neither truncation nor padding."""
        return "tokenizer.json contains neither truncation nor padding"

    def findings(self) -> Iterator[Finding]:
        cut, pad = self.tokenizer.truncation, self.tokenizer.padding
        if cut is not None:
            yield self.finding(
                f"tokenizer.json contains a truncation at {cut['max_length']:,} tokens, which the `tokenizers`"
                " library applies"
                + (
                    f"; {self.longer:,} of {self.examples:,} examples are longer"
                    if self.examples
                    else ""
                ),
                'set "truncation" to null in tokenizer.json',
                severity="error" if self.longer else self._severity_without_cut_rows(),
                evidence=[f"truncation: {cut}"],
                count=self.longer,
                total=self.examples,
            )
        if pad is not None:
            yield self.finding(
                "tokenizer.json contains a padding setting, which the `tokenizers` library applies to each text of"
                " a batch",
                'set "padding" to null in tokenizer.json',
                severity=self._severity_without_cut_rows(),
                evidence=[f"padding: {pad}"],
            )

    def _severity_without_cut_rows(self) -> Severity:
        """The severity of a saved state that cuts no row of the data; without data nobody knows
        whether any text is longer.
        """
        return "warning" if self.examples else "info"
