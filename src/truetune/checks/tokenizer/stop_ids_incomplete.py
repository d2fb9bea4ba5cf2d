"""Generation does not stop at the token that ends the turns.

## What it does
Compares the token that the chat template writes after an answer with the EOS tokens in generation_config.json, or, if
there is none, in the tokenizer and config.json. Without rows, it judges folders with a generation_config.json. It is an
error, or a warning if the tokenizer knows the token but
generation_config.json does not: transformers' `generate` then continues, while vLLM stops.

## Why it is bad
The model learns to end its turn, but the engine does not stop there: after the answer, the model makes up a new user
turn.

## Example
```yaml
files:
  tokenizer_config.json: {eos_token: "<|endoftext|>"}
  generation_config.json: {eos_token_id: 0}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  generation_config.json: {eos_token_id: [3, 0]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe: `eos_token_id` accepts a list. Keep the ids that are there, and add the terminator.

## References
- vllm-project/vllm#4180, huggingface/open-r1#663, huggingface/trl#7039, huggingface/trl#7127
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, explain_unknown_turn_end
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import StopToken


class StopIdsIncomplete(DataRule):
    code = "TOK005"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_without_rows = True
    by_trainer = (SeverityByFact("prepares_model", {True: MOOT}),)
    chats = 0

    def add_batch(self, batch: Batch) -> None:
        """Count the chats."""
        self.chats += batch.chats

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat, or it is not known how turns end."""
        if not self._are_chats_or_model_judged():
            return NO_CHATS
        return explain_unknown_turn_end(self.probes)

    def measurement_if_clean(self) -> str:
        """The token that ends turns, and the files that name it as a stop token."""
        stop = self._turn_end_of_template()
        assert stop is not None, "else the rule is not judged"
        return (
            f"turns end with {stop.token} ({stop.id}), a stop token by: {', '.join(stop.origins)}"
        )

    def findings(self) -> Iterator[Finding]:
        stop = self._turn_end_of_template()
        if not self._are_chats_or_model_judged() or stop is None:
            return
        # The template writes the token, which makes no engine stop at it.
        listed = set(stop.origins) - {"template"}
        known = self.tokenizer.generation_config is not None
        if "generation_config" in listed or (listed and not known):
            return
        where = "generation_config.json"
        if not known:
            where = "the tokenizer (there is no generation_config.json)"
        yield self.finding(
            f"turns end with {stop.token} ({stop.id}), which is not a stop token in {where}: generation continues"
            " after the answer",
            f'set "eos_token_id": {sorted(s.id for s in self.probes.stops)} in'
            " generation_config.json",
            severity="error" if known and not listed else "warning",
            evidence=list(self._evidence_of_stop_tokens_by_file(stop, listed))
            or ["no file names a stop token"],
        )

    def _are_chats_or_model_judged(self) -> bool:
        """Are there chats, or does the folder say by itself where its model stops?

        Rows that are no chats do not use the template."""
        return bool(self.chats) or (
            not self.spec.data and self.tokenizer.generation_config is not None
        )

    def _evidence_of_stop_tokens_by_file(self, stop: StopToken, listed: set[str]) -> Iterator[str]:
        """Evidence: the other stop tokens with the files that name them, and the files that name this one."""
        for other in self.probes.stops:
            if other != stop:
                yield f"{other.token} ({other.id}) is a stop token by: {', '.join(other.origins)}"
        if listed:
            yield (
                f"{stop.token} is defined only in: {', '.join(sorted(listed))}, which generate()"
                " ignores"
            )

    def _turn_end_of_template(self) -> StopToken | None:
        """The token that the chat template ends turns with."""
        terminator = self.probes.terminator
        if terminator is None or terminator.token is None:
            return None
        return next(stop for stop in self.probes.stops if stop.id == terminator.token.id)
