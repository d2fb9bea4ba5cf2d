"""The server does not end answers where the model does.

## What it does
Requests answers that the model, on this machine, ends by itself, with some extra tokens. It fires if the server
continues after that point, or if the text of an answer contains the stop token (errors) or the marker of another turn
(a warning): it does not stop at the trained token. Without the model (`--no-strength`), it only looks at the text of
the answers.

## Why it is bad
Answers continue into invented turns until a limit is reached. The model has learned to stop, but the server does not
know the id, since it takes its stop tokens from another `generation_config.json`, GGUF field or template.

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
There is no automatic fix: list the trained stop ids in `eos_token_id` of generation_config.json, next to the served
weights, or pass them to the server as stop tokens.

## References

- vllm-project/vllm#4180, vllm-project/vllm#4182, huggingface/open-r1#663
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import SEEN_BY
from truetune.checks.rule import ServingRule
from truetune.checks.shorten_text import quote_shortened
from truetune.generation.server_observations import AnswerEnd, ServerStops


class ServedStopIsMissing(ServingRule):
    code = "SRV004"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("never-stops", "slow-generation", "good-here-bad-there")
    severity = "error"
    since = "0.1.0"
    part = "stopping"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where no answer was asked for that the model ends by
        itself; None where it can.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.stopping is not None and self.subject.stopping.endings:
            return None
        return Unmet("no answer that the model ends by itself was requested", SEEN_BY["stopping"])

    def measurement_if_clean(self) -> str:
        """How many answers were asked for, of which none continues behind its end."""
        stopping = self.subject.stopping
        assert stopping is not None
        return f"0 of {len(stopping.endings):,} answers continue after their end"

    def findings(self) -> Iterator[Finding]:
        """The finding on answers that the server does not end where the model does."""
        stopping = self.subject.stopping
        missed_stops = _answers_past_their_end(stopping)
        if stopping is None or not missed_stops:
            return
        # A trained stop is written as `<|im_end|> (151645)`.
        stop_tokens = [token.partition(" ")[0] for token in stopping.trained]
        # Another mark in a text may be quoted by the answer; the stop token itself is never ordinary text.
        is_proved = any(ending.runs_on or ending.leaked in stop_tokens for ending in missed_stops)
        evidence = []
        if stopping.told:
            evidence.append(f"the server reports that it stops at {', '.join(stopping.told)}")
        if stopping.missing:
            evidence.append(
                f"the model's own files do not name {', '.join(stopping.missing)} as a stop"
            )
        yield self.finding(
            f"{len(missed_stops)} of {len(stopping.endings)} answers continue after their end: the"
            f" server does not stop at {', '.join(stopping.trained) or 'the trained stop token'}",
            "add the trained stop ids to eos_token_id in generation_config.json next to the served weights and"
            " restart the server, or pass them in each request (stop_token_ids)",
            severity="error" if is_proved else "warning",
            evidence=evidence,
            cases=[Case(_describe_answer_going_past_its_end(ending)) for ending in missed_stops],
            count=len(missed_stops),
            total=len(stopping.endings),
        )


def _answers_past_their_end(stopping: ServerStops | None) -> list[AnswerEnd]:
    """The answers that went past the end that the model gives them."""
    if stopping is None:
        return []
    return [ending for ending in stopping.endings if ending.runs_on or ending.leaked]


def _describe_answer_going_past_its_end(ending: AnswerEnd) -> str:
    """How an answer went past its end, in one line."""
    own = f"the model stops after {ending.expected} tokens, " if ending.runs_on else ""
    leak = f", its text contains {ending.leaked}" if ending.leaked else ""
    number = "more" if ending.tokens is None else f"{ending.tokens} tokens"
    return f"{quote_shortened(ending.question)}: {own}the server's answer has {number} and was cut{leak}"
