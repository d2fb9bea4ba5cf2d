"""BOS, EOS or pad differ from those of the base, and not in a way that was meant.

## What it does
Compares the special ids in config.json and generation_config.json, and the special tokens in tokenizer_config.json,
with those of the base. A warning: BOS is gone or another; a stop token of the base is gone, while the tokenizer has
the same EOS; the pad token became a stop token. Other changes are a note; a pad where there was none, and stop tokens
that came on top, are no finding.

## Why it is bad
Trainers align the three files and take one of them for the truth. The checkpoint then stops elsewhere than its base,
or starts without BOS.

## Example
```yaml
llama: 2
config: {bos_token_id: null}
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
base: {llama: 2}
```

## Fix safety
Copying the ids of the base back is safe, unless the run trained another stop token: then add it to the list.

## References
- huggingface/transformers#48592, huggingface/transformers#38441, huggingface/transformers#48708, huggingface/trl#7093
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.weight_files import read_object
from truetune.checks.checkpoint.architecture import setting
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

NAMES = ("bos", "eos", "pad")


class Change(NamedTuple):
    """One special token in one file."""

    file: str
    text: str
    bad: bool


class SpecialIdsRewrittenByTrainer(CheckpointRule):
    code = "CKP020"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    compares = True
    opens = False

    def unmet(self) -> Unmet | None:
        both = (
            None if self._files() else Unmet("no file with special tokens stands in both folders")
        )
        return super().unmet() or both

    def figure(self) -> str:
        return f"BOS, EOS and pad are the base's in {', '.join(self._files())}"

    def _files(self) -> list[str]:
        """Files with special tokens that both have."""
        found, base = self.subject, self.subject.base
        if base is None:
            return []
        parts = {
            "tokenizer_config.json": (_tokens(found), _tokens(base)),
            "config.json": (found.config, base.config),
            "generation_config.json": (found.generation_config, base.generation_config),
        }
        return [name for name, (mine, theirs) in parts.items() if mine and theirs]

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        if base is None:
            return
        changes = list(_changes(found, base))
        if changes:
            bad = [change for change in changes if change.bad]
            first = (bad or changes)[0]
            yield self.finding(
                f"{len(changes):,} special tokens are not those of the base: {first.file}:"
                f" {first.text}",
                "write the base's ids back, unless the change was meant",
                severity="warning" if bad else "info",
                cases=[Case(change.text, file=change.file) for change in bad or changes],
                evidence=[f"{c.file}: {c.text}" for c in changes if c != first],
                count=len(changes),
            )


def _changes(found: Checkpoint, base: Checkpoint) -> Iterator[Change]:
    mine, theirs = _tokens(found), _tokens(base)
    both = bool(mine and theirs)
    if both:
        yield from _renamed(mine, theirs)
    new_eos = both and mine.get("eos") != theirs.get("eos")
    yield from _renumbered("config.json", found.config, base.config, new_eos)
    yield from _renumbered(
        "generation_config.json", found.generation_config, base.generation_config, new_eos
    )


def _renamed(mine: dict[str, str], theirs: dict[str, str]) -> Iterator[Change]:
    for name in NAMES:
        was, now = theirs.get(name), mine.get(name)
        if was != now and not (name == "pad" and was is None):
            bad = name == "bos" or (name == "pad" and now == mine.get("eos"))
            yield Change("tokenizer_config.json", f"{name}_token was {was}, is {now}", bad)


def _renumbered(
    file: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], new_eos: bool
) -> Iterator[Change]:
    if not mine or not theirs:
        return
    eos = _ids(setting(mine, "eos_token_id"))
    for name in NAMES:
        key = f"{name}_token_id"
        was, now = _ids(setting(theirs, key)), _ids(setting(mine, key))
        if was and not was <= now:
            bad = {
                "bos": True,
                "eos": not now or not new_eos,
                "pad": bool(now & eos) and not was & eos,
            }[name]
            yield Change(file, f"{key} was {_text(was)}, is {_text(now)}", bad)


def _tokens(found: Checkpoint) -> dict[str, str]:
    """The special tokens by name; empty where the folder has no tokenizer"""
    if not found.tokenizer_config:
        return {}
    older = {} if "added_tokens_decoder" in found.tokenizer_config else _map(found)
    settings = {**older, **{k: v for k, v in found.tokenizer_config.items() if v is not None}}
    texts = {name: settings.get(f"{name}_token") for name in NAMES}
    plain = {
        name: text.get("content") if isinstance(text, dict) else text
        for name, text in texts.items()
    }
    return {name: text for name, text in plain.items() if isinstance(text, str)}


def _map(found: Checkpoint) -> dict[str, Any]:
    return read_object(found.folder / "special_tokens_map.json", []) or {}


def _ids(value: Any) -> set[int]:
    return {id for id in (value if isinstance(value, list) else [value]) if type(id) is int}


def _text(ids: set[int]) -> str:
    return " and ".join(str(id) for id in sorted(ids)) or "not set"
