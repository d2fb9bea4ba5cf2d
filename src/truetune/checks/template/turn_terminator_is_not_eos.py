"""The template ends turns with another token than the tokenizer's EOS.

## What it does
Renders a question and an answer, and compares what the template writes after the answer with the tokenizer's EOS token.
It only fires if the data contains chats. It is an error if the trainer only learns the EOS, or if the template writes
no control token after an answer. Otherwise it is a warning, or an info if a file lists the token as a stop token.

## Why it is bad
Many trainers and stop conditions know only one EOS. If turns end with another token, they leave that token out of the
loss, or generation does not stop at it: loss and evaluation look perfect, and the model keeps talking. If the template
writes no control token at all, nothing can stop the model.

## Example
```yaml
files:
  tokenizer_config.json: {eos_token: "<|endoftext|>"}
  generation_config.json: null
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Making the terminator the tokenizer's EOS is what instruct models do. It changes where other rows (plain text) end, so
do it before the data is tokenized, and list both tokens in `generation_config.json`.

## References
- axolotl-ai-cloud/axolotl#3754, axolotl-ai-cloud/axolotl#3756
- huggingface/trl#5988, huggingface/trl#6044, huggingface/trl#7039
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_stop, first_answer
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, explain_unknown_turn_end
from truetune.checks.rule import DataRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import SpecialToken
from truetune.settings.run_spec import Severity


class TurnTerminatorIsNotEos(DataRule):
    code = "TPL001"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("stop-token-not-trained",)
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)
    chats = 0
    first: Case | None = None

    def add_batch(self, batch: Batch) -> None:
        """Count the chats, and keep the end of the first answer as a case."""
        self.chats += batch.chats
        answer = first_answer(batch) if self.first is None else None
        if answer is not None:
            i, turn = answer
            text = batch.examples[i].rendering.text[max(0, turn.end - 40) : turn.end]
            self.first = case_at_stop(batch, i, turn, f"ends with {text!r}")

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat, or it is not known how turns end."""
        if not self.chats:
            return NO_CHATS
        return explain_unknown_turn_end(self.probes)

    def measurement_if_clean(self) -> str:
        """That turns end with the tokenizer's EOS, with its token and id."""
        eos = self.tokenizer.special["eos"]
        return f"turns end with {eos.token} ({eos.id}), which is the tokenizer's EOS"

    def findings(self) -> Iterator[Finding]:
        terminator, eos = self.probes.terminator, self.tokenizer.special.get("eos")
        if not self.chats or terminator is None:
            return
        if terminator.token is None:
            yield self._finding_on_end_without_control_token(terminator.text)
        elif eos is None or terminator.token.id != eos.id:
            yield self._finding_on_end_token_that_is_not_eos(terminator.token)

    def _finding_on_end_without_control_token(self, text: str) -> Finding:
        """The finding that the template ends answers with text that is no control token, or with
        nothing.
        """
        eos = self.tokenizer.special.get("eos")
        message = "the chat template writes nothing after an answer, so no turn has an end"
        if text.strip():
            message = (
                f"the chat template ends an answer with {text!r}, which is not a control token, so nothing stops the"
                " model"
            )
        return self.finding(
            message,
            f"in the chat template, write {eos.token if eos else 'the EOS token'} after each assistant turn",
            evidence=[f"EOS token of the tokenizer: {eos.token if eos else 'none'}"],
            cases=filter(None, [self.first]),
        )

    def _finding_on_end_token_that_is_not_eos(self, end: SpecialToken) -> Finding:
        """The finding that the template ends answers with a control token that is not the EOS."""
        eos = self.tokenizer.special.get("eos")
        eos_text = f"{eos.token} ({eos.id})" if eos else "none"
        stops = [stop for stop in self.probes.stops if stop.id == end.id]
        listed = [origin for stop in stops for origin in stop.origins if origin != "template"]
        evidence = [f"{end.token} is among the stop tokens of: {', '.join(listed) or 'no file'}"]
        # Where a file lists the token, servers stop at it, as they do for most published chat
        # models. A trainer that learns the EOS alone never teaches it, listed or not.
        severity: Severity = "info" if listed else "warning"
        if self.setup.trainer.stops_learned.value == "eos":
            severity = "error"
            evidence.append(
                f"{self.setup.trainer.name_in_reports} only learns the EOS after an answer"
            )
        return self.finding(
            f"the chat template ends turns with {end.token}, but the tokenizer's EOS is {eos_text}",
            f"if your trainer or server knows only one EOS, set eos_token to {end.token} in tokenizer_config.json"
            " before the data is tokenized, and list both ids as eos_token_id in generation_config.json",
            severity=severity,
            evidence=evidence,
            cases=filter(None, [self.first]),
        )
