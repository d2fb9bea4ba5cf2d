"""A token of the tokenizer has an id that the embedding has no row for.

## What it does
Compares the ids of pad, EOS, BOS, UNK and of all added tokens with the rows of the embedding (of the weights, else
of config.json).

## Why it is bad
The first batch that pads ends in an index error or a CUDA assert; with a batch size of 1 it hides. Where the id is
clamped, another token's vector is trained.

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
trained and saved. A pad token from the vocabulary needs none of it.

## References
- meta-llama/llama-cookbook#189, meta-llama/llama3#310, huggingface/transformers#23401
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.rule import Rule


class PadIdOutsideEmbedding(Rule):
    code = "TT104"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        rows = self.tokenizer.embedding_rows
        if rows is None:
            return
        added = {id: token.content for id, token in self.tokenizer.backend.get_added_tokens_decoder().items()}
        added |= {token.id: token.token for token in self.tokenizer.special.values()}
        beyond = {id: token for id, token in sorted(added.items()) if id >= rows}
        named = {token.id: name for name, token in self.tokenizer.special.items() if token.id >= rows}
        if beyond:
            yield self.finding(
                f"{len(beyond):,} added tokens have ids beyond the {rows:,} rows of the embedding",
                f"resize the embedding to {self.tokenizer.vocabulary:,} rows before training, or take tokens that "
                "the vocabulary has",
                severity="error" if named else "warning",
                evidence=[f"{beyond[id]} ({id}) is the {name} token" for id, name in named.items()],
                cases=[Case(f"{token} ({id})", file="tokenizer.json") for id, token in beyond.items()],
                count=len(beyond),
            )
