"""A token of the tokenizer has an id for which the embedding has no row.

## What it does
Compares the ids of pad, EOS, BOS and all added tokens with the number of rows of the embedding (from the weights,
otherwise from config.json). Added tokens other than these three are an info: some families share a tokenizer with a
larger model, and `ids-beyond-embedding` checks the rows of the data.

## Why it is bad
The first batch that is padded ends with an index error or a CUDA assert; with a batch size of 1 it does not show. If
the id is clamped, another token's vector is trained.

## Example
```yaml
files:
  config.json: {vocab_size: 3}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
`model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)` is safe before training; the new rows must be
trained and saved. A pad token from the vocabulary needs no resizing.

## References
- meta-llama/llama-cookbook#189, meta-llama/llama3#310, huggingface/transformers#23401
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EMBEDDING
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact

# The three that trainers put into batches by themselves; other added tokens do harm only where the
# data hold them.
NAMED_TOKENS = ("pad", "eos", "bos")


class TokenIdOutsideEmbedding(DataRule):
    code = "TOK004"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    by_trainer = (SeverityByFact("prepares_model", {True: MOOT}),)

    def unmet(self) -> Unmet | None:
        """Unmet where the rows of the embedding are not known."""
        return NO_EMBEDDING if self.tokenizer.embedding_rows is None else None

    def measurement_if_clean(self) -> Measurement:
        """The number of added tokens beyond the rows of the embedding, none."""
        special = (
            token.id for name, token in self.tokenizer.special.items() if name in NAMED_TOKENS
        )
        tokens = {*self.tokenizer.backend.get_added_tokens_decoder(), *special}
        return make_count_measurement(
            f"added tokens beyond the {self.tokenizer.embedding_rows:,} rows of the embedding",
            0,
            len(tokens),
        )

    def findings(self) -> Iterator[Finding]:
        rows = self.tokenizer.embedding_rows
        if rows is None:
            return
        special = self.tokenizer.special
        present = [name for name in NAMED_TOKENS if name in special]
        named = [name for name in present if special[name].id >= rows]
        texts = self._descriptions_of_tokens_without_row(rows, named)
        if not texts:
            return
        subject = (
            " and ".join(f"the {name} token" for name in named) or f"{len(texts):,} added tokens"
        )
        yield self.finding(
            f"the embedding has {rows:,} rows, too few for {subject}: the first batch with that id fails",
            f"call model.resize_token_embeddings({self.tokenizer.vocabulary}) before training, or use tokens that"
            " are already in the vocabulary",
            severity="error" if named else "info",
            cases=[Case(text, file="tokenizer.json") for text in texts.values()],
            count=len(texts),
        )

    def _descriptions_of_tokens_without_row(
        self, rows: int, named: Iterable[str]
    ) -> dict[int, str]:
        """Id -> description of the named special tokens and of the added tokens without a row."""
        texts = {}
        for name in named:
            token = self.tokenizer.special[name]
            texts[token.id] = f"{token.token} ({token.id}) is the {name} token"
        added = self.tokenizer.backend.get_added_tokens_decoder()
        for id, added_token in sorted(added.items()):
            if id >= rows:
                texts.setdefault(id, f"{added_token.content} ({id})")
        return texts
