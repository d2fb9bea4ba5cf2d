"""BOS, EOS or pad differ from those of the base, although nothing explains it.

## What it does
Compares the special ids in config.json and generation_config.json, and the special tokens in tokenizer_config.json,
with those of the base. It warns if BOS is missing or another one; if a stop token of the base is missing while the
tokenizer has the same EOS; and if the pad token became a stop token. Other changes are info. A new pad token where
there was none, and additional stop tokens, are not reported.

## Why it is bad
Trainers align the three files and take one of them for right. The checkpoint then stops elsewhere than its base, or
starts without BOS.

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
Copying the ids of the base back is safe, unless the run trained another stop token: then add that to the list.

## References
- huggingface/transformers#48592, huggingface/transformers#38441, huggingface/transformers#48708, huggingface/trl#7093
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.checkpoint.read_text_part_of_model_config import first_set_text_model_setting
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

SPECIAL_NAMES = ("bos", "eos", "pad")


class SpecialTokenChange(NamedTuple):
    """One special token that is another one in one file."""

    file: str
    text: str
    is_bad: bool
    """Not in a way that may be meant"""


class SpecialTokenIdsDifferFromBase(CheckpointRule):
    code = "CKP020"
    fault = Fault.TOKENIZER_FILES_CONTRADICT
    symptoms = ("garbage-output", "never-stops")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    compares = True
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._files_with_special_tokens_in_both():
            return Unmet("no file with special tokens is in both folders")
        return None

    def measurement_if_clean(self) -> str:
        """The files in which BOS, EOS and pad are the base's."""
        return f"BOS, EOS and pad are the base's in {', '.join(self._files_with_special_tokens_in_both())}"

    def _files_with_special_tokens_in_both(self) -> list[str]:
        """Files with special tokens that both have."""
        checkpoint, base = self.subject, self.subject.base
        if base is None:
            return []
        files = {
            "tokenizer_config.json": (_read_special_tokens(checkpoint), _read_special_tokens(base)),
            "config.json": (checkpoint.config, base.config),
            "generation_config.json": (checkpoint.generation_config, base.generation_config),
        }
        return [name for name, (own, of_base) in files.items() if own and of_base]

    def findings(self) -> Iterator[Finding]:
        base = self.subject.base
        if base is None:
            return
        changes = list(_list_special_token_changes(self.subject, base))
        if not changes:
            return
        bad = [change for change in changes if change.is_bad]
        first = (bad or changes)[0]
        yield self.finding(
            f"{len(changes):,} special token{'s are' if len(changes) > 1 else ' is'} not as in the base: {first.file}:"
            f" {first.text}",
            "write the base's ids back into these files, unless the change was intended",
            severity="warning" if bad else "info",
            cases=[Case(change.text, file=change.file) for change in bad or changes],
            evidence=[f"{change.file}: {change.text}" for change in changes if change != first],
            count=len(changes),
        )


def _list_special_token_changes(
    checkpoint: Checkpoint, base: Checkpoint
) -> Iterator[SpecialTokenChange]:
    """The special tokens that are not the base's, file by file."""
    own, of_base = _read_special_tokens(checkpoint), _read_special_tokens(base)
    has_both = bool(own and of_base)
    if has_both:
        yield from _list_changed_special_tokens(own, of_base)
    # A new EOS in the tokenizer was chosen, and its id in the other files follows from it.
    has_new_eos = has_both and own.get("eos") != of_base.get("eos")
    yield from _list_changed_ids("config.json", checkpoint.config, base.config, has_new_eos)
    yield from _list_changed_ids(
        "generation_config.json", checkpoint.generation_config, base.generation_config, has_new_eos
    )


def _list_changed_special_tokens(
    own: dict[str, str], of_base: dict[str, str]
) -> Iterator[SpecialTokenChange]:
    """Changes of tokenizer_config.json. A pad token where the base has none is needed for training, and is none."""
    for name in SPECIAL_NAMES:
        before, now = of_base.get(name), own.get(name)
        if before == now or (name == "pad" and before is None):
            continue
        is_bad = name == "bos" or (name == "pad" and now == own.get("eos"))
        text = f"{name}_token was {before} and is now {now}"
        yield SpecialTokenChange("tokenizer_config.json", text, is_bad)


def _list_changed_ids(
    file: str, own: Mapping[str, Any], of_base: Mapping[str, Any], has_new_eos: bool
) -> Iterator[SpecialTokenChange]:
    """Changes of the ids in a file of settings. Ids that came on top are none: more stop tokens do no harm."""
    if not own or not of_base:
        return
    eos = _as_set_of_ids(first_set_text_model_setting(own, "eos_token_id"))
    for name in SPECIAL_NAMES:
        key = f"{name}_token_id"
        before, now = (
            _as_set_of_ids(first_set_text_model_setting(of_base, key)),
            _as_set_of_ids(first_set_text_model_setting(own, key)),
        )
        if before <= now:
            continue
        is_bad = {
            "bos": True,
            "eos": not now or not has_new_eos,
            "pad": bool(now & eos) and not before & eos,
        }[name]
        text = f"{key} was {_describe_ids(before)} and is now {_describe_ids(now)}"
        yield SpecialTokenChange(file, text, is_bad)


def _read_special_tokens(checkpoint: Checkpoint) -> dict[str, str]:
    """The special tokens by name; empty where the folder has no tokenizer."""
    config = checkpoint.tokenizer_config
    if not config:
        return {}
    settings: dict[str, Any] = {}
    # Before transformers 4.34 special_tokens_map.json held them; later it is a copy that may be stale.
    if "added_tokens_decoder" not in config:
        settings |= read_json_object(checkpoint.folder / "special_tokens_map.json", []) or {}
    settings |= {name: value for name, value in config.items() if value is not None}
    tokens = {}
    for name in SPECIAL_NAMES:
        token = settings.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            tokens[name] = text
    return tokens


def _as_set_of_ids(value: Any) -> set[int]:
    """The ids of a setting, which is one id or a list of them, as a set."""
    return {id for id in (value if isinstance(value, list) else [value]) if type(id) is int}


def _describe_ids(ids: set[int]) -> str:
    """Ids in order, for a message."""
    return " and ".join(str(id) for id in sorted(ids)) or "not set"
