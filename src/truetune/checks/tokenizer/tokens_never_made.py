"""The tokenizer splits texts by chance, or never makes many of the tokens in its vocabulary.

## What it does
Looks at the byte-pair model in tokenizer.json. It fires if `dropout` is set, and if 2 % of the tokens in the vocabulary
(a sample of 1,000, without bytes and names in brackets) are split when they are encoded alone, since no merge makes
them.

## Why it is bad
`dropout` leaves out merges by chance: the same text has other tokens in each epoch, in evaluation and in serving. A
vocabulary whose merges are missing (files of two tokenizers, a list that was cut, words that were written into the
vocabulary by hand) is never used: texts take several times as many tokens, and the model sees pieces that it knows
little of. Decoding still gives the same text, so nothing shows it.

## Example
```yaml
files:
  tokenizer.json:
    model:
      type: BPE
      dropout: 0.1
      vocab: {"<|endoftext|>": 0, "<|pad|>": 1, "<|im_start|>": 2, "<|im_end|>": 3, o: 4, p: 5, op: 6}
      merges: [[o, p]]
```

## Use instead
```yaml
files:
  tokenizer.json:
    model:
      type: BPE
      dropout: null
      vocab: {"<|endoftext|>": 0, "<|pad|>": 1, "<|im_start|>": 2, "<|im_end|>": 3, o: 4, p: 5, op: 6}
      merges: [[o, p]]
```

## Fix safety
Restore tokenizer.json as it was published. New words belong to the added tokens (`add_tokens`), and their rows have to
be trained. A model that was trained with the damaged file has to be trained again.

## References
- huggingface/tokenizers documentation, "BPE" (`dropout`)
- huggingface/tokenizers#909, huggingface/transformers#20734
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule

FILE = "tokenizer.json"
SAMPLED_TOKENS = 1000
"""Chosen, not measured: 2 % are known to within a half, and it takes 10 ms"""
MAX_SPLIT_SHARE = 0.02
"""Of the sampled tokens. Measured on 29 published vocabularies: none is split in 28 of them, 0.1 % in one"""
NAMES_IN_BRACKETS = ("<", "[")
"""Beginnings of what stands for bytes (`<0x0A>`), spare and control tokens, which no merge makes by design"""


class TokensNeverMade(DataRule):
    code = "TOK018"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer is not available, or its model is not one of byte pairs."""
        if self.setup.are_tokens_single_bytes or self._byte_pair_model is None:
            return Unmet("it is about vocabularies of byte pairs")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of sampled tokens that are split, of all that were tried."""
        return make_count_measurement(
            "tokens that are split when they are encoded alone",
            len(self._split_tokens),
            len(self._sampled_tokens),
        )

    def findings(self) -> Iterator[Finding]:
        model = self._byte_pair_model
        if self.setup.are_tokens_single_bytes or model is None:
            return
        if model.dropout:
            yield self.finding(
                f"{FILE} leaves out merges by chance (dropout {model.dropout:g}): the same text has other tokens each"
                " time it is encoded",
                f'set "dropout" to null in "model" of {FILE}',
                cases=[Case(f"dropout: {model.dropout:g}", file=FILE)],
            )
            return
        split, sampled = self._split_tokens, self._sampled_tokens
        if len(split) < MAX_SPLIT_SHARE * len(sampled) or not split:
            return
        token, pieces = next(iter(split.items()))
        yield self.finding(
            f"{len(split) / len(sampled):.0%} of the vocabulary are tokens that {FILE} never makes, because their"
            f" merges are missing: {token!r} becomes {len(pieces)} tokens",
            f"restore {FILE} as it was published, with its vocabulary and merges from one file; add new words with"
            " add_tokens",
            evidence=[f"{len(split):,} of {len(sampled):,} sampled tokens are split"],
            cases=[
                Case(f"{token!r} becomes {' + '.join(parts)}", file=FILE)
                for token, parts in split.items()
            ],
            count=len(split),
            total=len(sampled),
        )

    @cached_property
    def _byte_pair_model(self) -> Any:
        """The model of byte pairs; None of another kind, and where the backend has none to ask (in a browser)."""
        model = getattr(self.tokenizer.backend, "model", None)
        return model if hasattr(model, "dropout") and hasattr(model, "tokenize") else None

    @cached_property
    def _sampled_tokens(self) -> tuple[str, ...]:
        """Tokens of the vocabulary, spread evenly, without added tokens and names in brackets."""
        backend = self.tokenizer.backend
        added = {token.content for token in backend.get_added_tokens_decoder().values()}
        tokens = sorted(
            token
            for token in backend.get_vocab(with_added_tokens=False)
            if token not in added and not token.startswith(NAMES_IN_BRACKETS)
        )
        places = np.unique(np.linspace(0, len(tokens) - 1, num=SAMPLED_TOKENS).astype(int))
        return tuple(tokens[i] for i in places) if tokens else ()

    @cached_property
    def _split_tokens(self) -> dict[str, list[str]]:
        """The sampled tokens that the model splits -> their pieces."""
        pieces = {
            token: [piece.value for piece in self._byte_pair_model.tokenize(token)]
            for token in self._sampled_tokens
        }
        return {token: parts for token, parts in pieces.items() if len(parts) > 1}
