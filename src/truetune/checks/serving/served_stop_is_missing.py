"""The server does not end answers where the model does.

## What it does

Asks the server for answers that the model, on this machine, ends by itself, and gives it some more tokens. Where the
server goes on behind that place, or the text of an answer holds the stop token or the mark of another turn, it does not
stop at the trained token. Without the model at hand (`--no-strength`) only the text of the answers is looked at.

## Why it is bad

Answers run on into invented turns until a limit is reached. The model has learned to stop: the server does not know the
id, as it takes its stops from another `generation_config.json`, GGUF field or template.

## Example

```yaml
stopping:
  trained: ["<|im_end|> (2)"]
  endings:
    - {question: "Who are you?", expected: 12, tokens: 20, finish: length, leaked: "<|im_end|>", runs_on: true}
```

## Use instead

```yaml
stopping:
  trained: ["<|im_end|> (2)"]
  endings:
    - {question: "Who are you?", expected: 12, tokens: 12, finish: stop}
```

## Fix safety

There is no automatic fix: name the trained stop ids in `eos_token_id` of generation_config.json, beside the weights
that are served, or as a stop of the server.

## References

- vllm-project/vllm#4180, vllm-project/vllm#4182, huggingface/open-r1#663
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recited import short
from truetune.checks.rule import ServingRule
from truetune.checks.unmet_reasons import SEEN_BY
from truetune.generation.server_observations import AnswerEnd


class ServedStopIsMissing(ServingRule):
    code = "SRV004"
    severity = "error"
    since = "0.1.0"
    part = "stopping"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        asked = self.subject.stopping is not None and self.subject.stopping.endings
        return (
            None
            if asked
            else Unmet("no answer that the model ends by itself was asked for", SEEN_BY["stopping"])
        )

    def figure(self) -> str:
        found = self.subject.stopping
        assert found is not None
        return f"0 of {len(found.endings):,} answers go on behind their end"

    def findings(self) -> Iterator[Finding]:
        found = self.subject.stopping
        missed = (
            [ending for ending in found.endings if ending.runs_on or ending.leaked] if found else []
        )
        if found is None or not missed:
            return
        tokens = [token.partition(" ")[0] for token in found.trained]
        sure = any(ending.runs_on or ending.leaked in tokens for ending in missed)
        yield self.finding(
            f"{len(missed)} of {len(found.endings)} answers go on behind their end: the server does"
            f" not stop at {', '.join(found.trained) or 'the trained stop token'}",
            "name the trained stop ids in eos_token_id of generation_config.json beside the served"
            " weights, or give them to the server as stops",
            severity="error" if sure else "warning",
            evidence=[
                *(
                    [f"the server says that it stops at {', '.join(found.told)}"]
                    if found.told
                    else []
                ),
                *(
                    [f"the model's own files do not name {', '.join(found.missing)} as a stop"]
                    if found.missing
                    else []
                ),
            ],
            cases=[Case(_text(ending)) for ending in missed],
            count=len(missed),
            total=len(found.endings),
        )


def _text(ending: AnswerEnd) -> str:
    own = f"the model stops after {ending.expected} tokens, " if ending.runs_on else ""
    leak = f", and {ending.leaked} stands in its text" if ending.leaked else ""
    number = "more" if ending.tokens is None else f"{ending.tokens} tokens"
    return f"{short(ending.question)}: {own}the server's answer has {number} and was cut{leak}"
