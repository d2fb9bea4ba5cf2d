"""The saved tokenizer cuts text in another way than the base's.

## What it does
Compares the normalizer and the pre-tokenizer in tokenizer.json with the base's, and the ids of the tokens that both
have.

## Why it is bad
The same text gets other ids in serving than the model knows: quality falls a little everywhere, and nothing fails.

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
Copying the base's tokenizer.json is safe where no token was added. Where the base's own pattern was wrong and corrected
on purpose (`fix_mistral_regex`), keep the one that was trained with.

## References
- huggingface/transformers#42591, huggingface/transformers#42299, unslothai/unsloth#4996, modelscope/ms-swift#6883
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TokenizerError
from truetune.render.tokenizer_folder import read_json

CUTS = ("normalizer", "pre_tokenizer")


class TokenizerDiffersFromBase(CheckpointRule):
    code = "CKP026"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    compares = True
    opens = False

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        base = self.subject.base
        both = base is not None and _read(self.subject.folder) and _read(base.folder)
        return (
            None
            if both
            else Unmet("tokenizer.json is not in both folders", "put it beside the weights")
        )

    def figure(self) -> str:
        base = self.subject.base
        mine, theirs = (
            _read(self.subject.folder) or {},
            _read(base.folder) if base is not None else None,
        )
        common = _vocabulary(mine).keys() & _vocabulary(theirs or {}).keys()
        return f"{len(common):,} of {len(common):,} tokens that both have keep their id"

    def findings(self) -> Iterator[Finding]:
        base = self.subject.base
        mine = _read(self.subject.folder)
        theirs = _read(base.folder) if base is not None else None
        if mine is None or theirs is None:
            return
        changed = [part for part in CUTS if _cuts(mine.get(part)) != _cuts(theirs.get(part))]
        moved = _moved(_vocabulary(mine), _vocabulary(theirs))
        if changed or moved:
            evidence = [
                f"{part}: {_short(mine.get(part))}; the base: {_short(theirs.get(part))}"
                for part in changed
            ]
            evidence += (
                [f"{len(moved):,} tokens have another id, {moved[0]!r} first"] if moved else []
            )
            yield self.finding(
                f"{' and '.join(changed) or 'ids'} of tokenizer.json are not the base's: a text"
                " gets other ids",
                "put the tokenizer that was used in training into both training and serving",
                evidence=evidence,
                cases=[Case("", file="tokenizer.json")],
            )


def _read(folder: Path) -> dict[str, Any] | None:
    """None where there is none, or the rules on tokenizers say that it is broken."""
    try:
        return read_json(folder / "tokenizer.json")
    except TokenizerError:
        return None


def _cuts(part: Any) -> Any:
    """Without what changes offsets and no id."""
    if isinstance(part, dict):
        return {name: _cuts(value) for name, value in part.items() if name != "trim_offsets"}
    return [_cuts(value) for value in part] if isinstance(part, list) else part


def _vocabulary(tokenizer: dict[str, Any]) -> dict[str, Any]:
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    return vocabulary if isinstance(vocabulary, dict) else {}


def _moved(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [token for token, id in theirs.items() if token in mine and mine[token] != id]


def _short(value: Any, longest: int = 120) -> str:
    text = json.dumps(value)
    return text if len(text) <= longest else f"{text[:longest]}..."
