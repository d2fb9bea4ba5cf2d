"""Generation does not stop at the token that ends the turns.

## What it does
Compares the token that the chat template writes after an answer with the EOS tokens of the tokenizer,
generation_config.json and config.json.

## Why it is bad
The model learns to end its turn, and the engine does not stop there: the answer is followed by a new user turn that
the model makes up.

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
Safe: `eos_token_id` takes a list. Keep what is there, and add the terminator.

## References
- vllm-project/vllm#4180, huggingface/open-r1#663, huggingface/trl#7039, huggingface/trl#7127
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.encode.batch import Batch


class StopIdsIncomplete(Rule):
    code = "TT105"
    severity = "error"
    chats = 0

    def batch(self, batch: Batch) -> None:
        self.chats += sum(row.is_chat for row in batch.rows)

    def findings(self) -> Iterator[Finding]:
        terminator = self.probes.terminator
        if not self.chats or terminator is None or terminator.token is None:
            return
        stop = next(stop for stop in self.probes.stops if stop.id == terminator.token.id)
        known = self.tokenizer.generation_config is not None
        if "generation_config" in stop.origins or (not known and stop.origins != ("template",)):
            return
        others = ", ".join(f"{s.token} ({s.id})" for s in self.probes.stops if s.id != stop.id) or "nothing"
        where = "generation_config.json" if known else "the tokenizer, and there is no generation_config.json"
        ids = sorted({stop.id, *(s.id for s in self.probes.stops)})
        yield self.finding(
            f"turns end with {stop.token} ({stop.id}), which is no stop token of {where}",
            f'write "eos_token_id": {ids} into generation_config.json',
            severity="error" if known else "warning",
            evidence=[f"generation stops at {others}"],
        )
