"""tokenizer_config.json and tokenizer.json disagree on whether BOS or EOS is added.

## What it does
Encodes a word with tokenizer.json and compares what is added before and after it with `add_bos_token` and
`add_eos_token` in tokenizer_config.json, if these are set. It is a warning, and an info if the chat template writes BOS
itself: chats are then the same for all readers.

## Why it is bad
transformers 5 and the `tokenizers` library follow tokenizer.json. transformers 4 (for Llama, Gemma and similar) and the
GGUF converters follow the setting. A model that is trained with BOS and served without, or the other way round, answers
worse from the first token on.

## Example
```yaml
files:
  tokenizer_config.json: {add_bos_token: true, bos_token: "<|endoftext|>"}
```

## Use instead
```yaml
files:
  tokenizer_config.json: {add_bos_token: false, bos_token: "<|endoftext|>"}
```

## Fix safety
Set the key to what tokenizer.json does, if the model was trained with that.

## References
- ggml-org/llama.cpp#3966, ggml-org/llama.cpp#6947, oobabooga/textgen#6050
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import DataRule
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

CONFIG_FILE = "tokenizer_config.json"


class AddedBosOrEosContradictsSetting(DataRule):
    code = "TOK014"
    fault = Fault.TOKENIZER_FILES_CONTRADICT
    symptoms = ("good-here-bad-there",)
    severity = "warning"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where tokenizer_config.json sets neither key."""
        if not self._stated_and_actual_by_key():
            return Unmet("it is about add_bos_token and add_eos_token, and neither is set")
        return None

    def measurement_if_clean(self) -> str:
        """What the settings say, as tokenizer.json does it."""
        return ", ".join(
            f"{key}: {stated}" for key, (stated, _) in self._stated_and_actual_by_key().items()
        )

    def findings(self) -> Iterator[Finding]:
        for key, (stated, done) in self._stated_and_actual_by_key().items():
            if stated == done:
                continue
            name = "BOS" if key == "add_bos_token" else "EOS"
            does = f"adds {name}" if done else f"adds no {name}"
            yield self.finding(
                f"{key} is {str(stated).lower()} in {CONFIG_FILE}, but tokenizer.json {does}: training and serving"
                " may follow different files",
                f"set {key} to {str(done).lower()} in {CONFIG_FILE}, if the model was trained with what"
                " tokenizer.json does (transformers 5)",
                severity="info" if name == "BOS" and self._does_template_write_bos() else None,
                cases=[Case(f"{key}: {str(stated).lower()}", file=CONFIG_FILE)],
            )

    def _does_template_write_bos(self) -> bool:
        """Does each chat begin with BOS by its template?"""
        text = self.probes.text(alternating_chat(QUESTION, ANSWER))
        bos = self.tokenizer.special.get("bos")
        return text is not None and bos is not None and text.startswith(bos.token)

    def _stated_and_actual_by_key(self) -> dict[str, tuple[bool, bool]]:
        """Each key that is set: what it says, and what tokenizer.json does.

        A key about a token that the tokenizer does not have says nothing.
        """
        done = {
            "bos": self.tokenizer.adds_bos,
            "eos": self.tokenizer.adds_eos,
        }
        stated = {
            f"add_{name}_token": self.tokenizer.config.get(f"add_{name}_token") for name in done
        }
        return {
            key: (value, done[name])
            for name, (key, value) in zip(done, stated.items(), strict=True)
            if isinstance(value, bool) and name in self.tokenizer.special
        }
