"""Two files of the tokenizer give a token different ids, flags or roles.

## What it does
Compares the added tokens in tokenizer.json with `added_tokens_decoder` in tokenizer_config.json and with
added_tokens.json: the id of each, and whether it strips the white space next to it (`lstrip`, `rstrip`), is matched
after normalization, or is special. It also compares the special tokens (EOS, BOS, the pad token) in
special_tokens_map.json with those in tokenizer_config.json, and vocab.json with the vocabulary in tokenizer.json.

## Why it is bad
Each program reads another file. The `tokenizers` library and servers that use it read tokenizer.json; transformers
applies the flags of tokenizer_config.json on top; converters to other formats read either. Training and serving then
give the same text different ids, and a token that tokenizer.json lacks gets a new id after the vocabulary.

## Example
```yaml
files:
  tokenizer_config.json:
    added_tokens_decoder:
      "2": {content: "<|im_end|>", special: true, lstrip: false, rstrip: false, normalized: false, single_word: false}
      "3": {content: "<|im_start|>", special: true, lstrip: false, rstrip: false, normalized: false, single_word: false}
```

## Use instead
```yaml
files:
  tokenizer_config.json:
    added_tokens_decoder:
      "2": {content: "<|im_start|>", special: true, lstrip: false, rstrip: false, normalized: false, single_word: false}
      "3": {content: "<|im_end|>", special: true, lstrip: false, rstrip: false, normalized: false, single_word: false}
```

## Fix safety
Take all files from one source: the published tokenizer, or `save_pretrained` of the one used in training.

## References
- huggingface/transformers#33371, lm-sys/FastChat#153, InternLM/InternLM#715
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.render.find_tokenizer_folder import read_json
from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import Severity

CONFIG_FILE = "tokenizer_config.json"
ADDED_FILE = "added_tokens.json"
MAP_FILE = "special_tokens_map.json"
VOCABULARY_FILE = "vocab.json"
COMPARED_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
GRAVEST_FIRST: tuple[Severity, ...] = ("error", "warning", "info")
FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")


class Disagreement(NamedTuple):
    """One token of which another file says something else than tokenizer.json."""

    file: str
    text: str
    severity: Severity


class AddedTokensDisagree(DataRule):
    code = "TOK010"
    fault = Fault.TOKENIZER_FILES_CONTRADICT
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.listed = _tokens_of_added_tokens_decoder(setup.tokenizer)
        self.ids_of_added_file = _token_ids_of_added_tokens_json(setup.tokenizer)

    def unmet(self) -> Unmet | None:
        """Unmet where tokenizer.json is the only file that lists added tokens."""
        folder = self.tokenizer.folder
        if any((folder / name).is_file() for name in (MAP_FILE, VOCABULARY_FILE)):
            return None
        if not self.tokenizer.added_in_file or not (self.listed or self.ids_of_added_file):
            return Unmet("it is about added tokens that two files list, and only one file does")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of tokens that two files give differently, none."""
        compared = len(self.listed) + len(self.ids_of_added_file)
        return make_count_measurement("tokens that two files give differently", 0, compared)

    def findings(self) -> Iterator[Finding]:
        found = [
            *self._disagreements_of_tokenizer_config(),
            *self._disagreements_of_added_tokens_json(),
            *self._disagreements_of_special_tokens_map(),
            *self._disagreements_of_vocab_json(),
        ]
        if not found:
            return
        found.sort(key=lambda one: GRAVEST_FIRST.index(one.severity))
        first = found[0]
        other = "tokenizer_config.json" if first.file == MAP_FILE else "tokenizer.json"
        yield self.finding(
            f"{other} and {first.file} differ on {len(found):,} tokens: {first.text}",
            "take both files from one source: the published tokenizer, or what save_pretrained of the training"
            " tokenizer wrote",
            severity=first.severity,
            cases=[Case(one.text, file=one.file) for one in found],
            count=len(found),
        )

    def _disagreements_of_tokenizer_config(self) -> Iterator[Disagreement]:
        """Disagreements of tokenizer_config.json."""
        ids = {token.content: id for id, token in self.tokenizer.added_in_file.items()}
        for id, listed in self.listed.items():
            content = str(listed.get("content"))
            if text := self._describe_other_id(content, id, ids):
                yield Disagreement(CONFIG_FILE, text, "error")
            elif id in self.tokenizer.added_in_file:
                own = self.tokenizer.added_in_file[id]
                flags = [
                    flag for flag in FLAGS if flag in listed and listed[flag] != getattr(own, flag)
                ]
                if flags:
                    text = f"{content} ({id}): " + ", ".join(
                        f"{flag} is {getattr(own, flag)} and {listed[flag]}" for flag in flags
                    )
                    yield Disagreement(CONFIG_FILE, text, _severity_of_flags(flags))

    def _disagreements_of_added_tokens_json(self) -> Iterator[Disagreement]:
        """Disagreements of added_tokens.json."""
        ids = {token.content: id for id, token in self.tokenizer.added_in_file.items()}
        for content, id in self.ids_of_added_file.items():
            if text := self._describe_other_id(content, id, ids):
                yield Disagreement(ADDED_FILE, text, "error")

    def _disagreements_of_special_tokens_map(self) -> Iterator[Disagreement]:
        """Special tokens that special_tokens_map.json and tokenizer_config.json name differently."""
        values = read_json(self.tokenizer.folder / MAP_FILE) or {}
        for name in COMPARED_SPECIAL_TOKENS:
            own, other = (
                _text_of_token(table.get(name)) for table in (self.tokenizer.config, values)
            )
            if own is not None and other is not None and own != other:
                yield Disagreement(
                    MAP_FILE, f"{name} is {own} in {CONFIG_FILE} but {other} there", "warning"
                )

    def _disagreements_of_vocab_json(self) -> Iterator[Disagreement]:
        """Tokens of vocab.json that have another id in tokenizer.json, or none; and those that it lacks."""
        values = read_json(self.tokenizer.folder / VOCABULARY_FILE) or {}
        ids = {token: id for token, id in values.items() if type(id) is int}
        if not ids:
            return
        known = self.tokenizer.backend.get_vocab(with_added_tokens=True)
        for token, id in ids.items():
            own = known.get(token)
            if own is None:
                yield Disagreement(
                    VOCABULARY_FILE,
                    f"{token!r} is {id} there, but is not in tokenizer.json",
                    "error",
                )
            elif own != id:
                yield Disagreement(
                    VOCABULARY_FILE, f"{token!r} is {own} in tokenizer.json but {id} there", "error"
                )
        plain = self.tokenizer.backend.get_vocab(with_added_tokens=False)
        lacking = [
            token for token in plain if token not in ids and token not in self._texts_of_added
        ]
        if lacking:
            text = f"{len(lacking):,} tokens of tokenizer.json are not there, for example {lacking[0]!r}"
            yield Disagreement(VOCABULARY_FILE, text, "error")

    @property
    def _texts_of_added(self) -> set[str]:
        """The texts of the added tokens, which vocab.json need not have."""
        return {
            token.content for token in self.tokenizer.backend.get_added_tokens_decoder().values()
        }

    def _describe_other_id(self, content: str, id: int, ids: dict[str, int]) -> str:
        """What differs between the id that another file gives a token and that of tokenizer.json; "" for nothing.

        Args:
            content: the token.
            id: that the other file gives it.
            ids: token -> id of the added tokens in tokenizer.json.
        """
        own = ids.get(content)
        if own is None:
            # A token may stand in the vocabulary without being an added one.
            own = self.tokenizer.backend.token_to_id(content)
            if own == id:
                return ""
            if own is None:
                return f"{content} is {id} there, but is not in tokenizer.json"
            return f"{content} is {id} there, but becomes {own} when tokenizer.json, which lacks it, is loaded"
        return "" if own == id else f"{content} is {own} in tokenizer.json but {id} there"


def _text_of_token(value: Any) -> str | None:
    """The text of a token that is written as a text or as an object; None of neither."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _severity_of_flags(flags: list[str]) -> Severity:
    """`normalized` alone matters only to a token whose own text the normalizer would change."""
    return "info" if flags == ["normalized"] else "warning"


def _tokens_of_added_tokens_decoder(tokenizer: Tokenizer) -> dict[int, dict[str, Any]]:
    """The tokens of `added_tokens_decoder` by id."""
    listed = tokenizer.config.get("added_tokens_decoder")
    if not isinstance(listed, dict):
        return {}
    return {int(id): token for id, token in listed.items() if isinstance(token, dict)}


def _token_ids_of_added_tokens_json(tokenizer: Tokenizer) -> dict[str, int]:
    """added_tokens.json: token -> id."""
    values = read_json(tokenizer.folder / ADDED_FILE) or {}
    return {token: id for token, id in values.items() if isinstance(id, int)}
