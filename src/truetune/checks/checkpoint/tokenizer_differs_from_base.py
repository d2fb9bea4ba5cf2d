"""The saved tokenizer splits text in another way than the base's.

## What it does
Compares the normalizer and the pre-tokenizer in tokenizer.json with the base's, and the ids of the tokens that both
have.

## Why it is bad
In serving, the same text gets other ids than the model knows: quality falls a little everywhere, and nothing fails.

## Example
```yaml
llama: 1
tokens: {}
files: {tokenizer.json: '{"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}
base:
  llama: 1
  files: {tokenizer.json: '{"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}
```

## Use instead
```yaml
llama: 1
files: {tokenizer.json: '{"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}
base:
  llama: 1
  files: {tokenizer.json: '{"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}
```

## Fix safety
Copying the base's tokenizer.json is safe if no token was added. If the base's pattern was wrong and was corrected on
purpose (`fix_mistral_regex`), keep the one from training.

## References
- huggingface/transformers#42591, huggingface/transformers#42299, unslothai/unsloth#4996, modelscope/ms-swift#6883
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TokenizerError
from truetune.render.find_tokenizer_folder import read_json

# What decides where a text is cut; the post-processor adds tokens around it, which other rules compare.
PARTS_THAT_CUT = ("normalizer", "pre_tokenizer")
SHOWN_CHARS = 120


class TokenizerDiffersFromBase(CheckpointRule):
    code = "CKP026"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    compares = True
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        base = self.subject.base
        if (
            base is None
            or not _read_tokenizer_json(self.subject.folder)
            or not _read_tokenizer_json(base.folder)
        ):
            return Unmet("tokenizer.json is not in both folders", "put it beside the weights")
        return None

    def measurement_if_clean(self) -> str:
        """How many tokens that both tokenizers have keep their id."""
        base = self.subject.base
        own = _read_tokenizer_json(self.subject.folder) or {}
        of_base = (_read_tokenizer_json(base.folder) or {}) if base is not None else {}
        common = _vocabulary_of(own).keys() & _vocabulary_of(of_base).keys()
        return f"{len(common):,} of {len(common):,} tokens that both have keep their id"

    def findings(self) -> Iterator[Finding]:
        base = self.subject.base
        own = _read_tokenizer_json(self.subject.folder)
        of_base = _read_tokenizer_json(base.folder) if base is not None else None
        if own is None or of_base is None:
            return
        changed = [
            part
            for part in PARTS_THAT_CUT
            if _without_offset_settings(own.get(part))
            != _without_offset_settings(of_base.get(part))
        ]
        moved = _tokens_with_other_id(_vocabulary_of(own), _vocabulary_of(of_base))
        if not changed and not moved:
            return
        evidence = [
            f"{part}: {_shorten_json(own.get(part))}; the base: {_shorten_json(of_base.get(part))}"
            for part in changed
        ]
        if moved:
            evidence.append(f"{len(moved):,} tokens have another id, the first is {moved[0]!r}")
        yield self.finding(
            f"{' and '.join(changed) or 'ids'} in tokenizer.json differ{'s' if len(changed) == 1 else ''} from the"
            " base's: the same text gets other ids",
            "serve with the tokenizer that was used in training; if no token was added, copy the base's tokenizer.json"
            " into this folder",
            evidence=evidence,
            cases=[Case("", file="tokenizer.json")],
        )


def _read_tokenizer_json(folder: Path) -> dict[str, Any] | None:
    """The content of tokenizer.json; None where there is none, or the rules on tokenizers say that it is broken."""
    try:
        return read_json(folder / "tokenizer.json")
    except TokenizerError:
        return None


def _without_offset_settings(part: Any) -> Any:
    """A part without what changes offsets and no id: releases of tokenizers write `trim_offsets` differently."""
    if isinstance(part, dict):
        return {
            name: _without_offset_settings(value)
            for name, value in part.items()
            if name != "trim_offsets"
        }
    return [_without_offset_settings(value) for value in part] if isinstance(part, list) else part


def _vocabulary_of(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Token -> id; empty for Unigram models, whose vocabulary is a list of tokens and scores."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    return vocabulary if isinstance(vocabulary, dict) else {}


def _tokens_with_other_id(own: dict[str, Any], of_base: dict[str, Any]) -> list[str]:
    """Tokens of both vocabularies whose ids differ."""
    return [token for token, id in of_base.items() if token in own and own[token] != id]


def _shorten_json(value: Any) -> str:
    """A value as JSON, as far as a line holds it."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
