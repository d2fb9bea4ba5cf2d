"""Generation is not allowed to write the token that ends a turn.

## What it does
Looks for the stop tokens of the template and the tokenizer in `suppress_tokens` and `bad_words_ids` in
generation_config.json. It is an info if the template ends turns with another token.

## Why it is bad
A suppressed token gets the probability 0. The model has learned to end its turn, but can't: each answer continues up to
its length limit.

## Example
```yaml
files:
  generation_config.json: {suppress_tokens: [3]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  generation_config.json: {suppress_tokens: [2]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe: a stop token belongs in none of these lists.

## References
- huggingface/transformers#24099, deepspeedai/DeepSpeedExamples#470
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import DataRule
from truetune.checks.tokenizer.evidence.token_ids_named_by_model_configs import (
    GENERATION_FILE,
    ids_in_value,
)
from truetune.render.tokenizer import StopToken


class StopTokenIsSuppressed(DataRule):
    code = "TOK009"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("never-stops",)
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where there is no generation_config.json, or no stop token."""
        if self.tokenizer.generation_config is None:
            return Unmet("it is about generation_config.json, and there is none")
        return (
            None if self.probes.stops else Unmet("it is about stop tokens, and no file names one")
        )

    def measurement_if_clean(self) -> str:
        """The ids that may not be generated, and that no stop token is among them."""
        banned = self._keys_by_banned_id()
        if not banned:
            return "no token is suppressed"
        return f"{len(banned):,} tokens are suppressed, none of them a stop token"

    def findings(self) -> Iterator[Finding]:
        banned = self._keys_by_banned_id()
        suppressed = [stop for stop in self.probes.stops if stop.id in banned]
        if not suppressed:
            return
        first = self._stop_token_of_template_or_first(suppressed)
        key = banned[first.id]
        yield self.finding(
            f"{first.token} ({first.id}) is a stop token, but {key} in {GENERATION_FILE} forbids it: an answer can't"
            " end with it",
            f"remove {first.id} from {key} in {GENERATION_FILE}",
            # Where the template ends turns with another token, that one ends the answer all the same.
            severity="error" if self._are_template_or_all_stops_suppressed(suppressed) else "info",
            cases=[
                Case(f"{banned[stop.id]} contains {stop.id}", file=GENERATION_FILE)
                for stop in suppressed
            ],
            evidence=[
                f"{stop.token} ({stop.id}) is a stop token by: {', '.join(stop.origins)}"
                for stop in suppressed
            ],
            count=len(suppressed),
        )

    def _are_template_or_all_stops_suppressed(self, suppressed: list[StopToken]) -> bool:
        """Is the token that the template writes suppressed, or each stop token?"""
        is_of_template = any("template" in stop.origins for stop in suppressed)
        return is_of_template or len(suppressed) == len(self.probes.stops)

    def _stop_token_of_template_or_first(self, stops: list[StopToken]) -> StopToken:
        """The one that the chat template writes, else the first."""
        return next((stop for stop in stops if "template" in stop.origins), stops[0])

    def _keys_by_banned_id(self) -> dict[int, str]:
        """Each id that may not be generated, with the setting that forbids it."""
        settings = self.tokenizer.generation_config or {}
        banned = dict.fromkeys(ids_in_value(settings.get("suppress_tokens")), "suppress_tokens")
        words = settings.get("bad_words_ids")
        for word in words if isinstance(words, list) else []:
            # Words of several tokens forbid the last one only behind the others.
            if isinstance(word, list) and len(word) == 1:
                banned |= dict.fromkeys(ids_in_value(word), "bad_words_ids")
        return banned
