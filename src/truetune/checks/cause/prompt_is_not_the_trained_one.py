"""The prompts differ from those of the training.

## What it does
Builds the prompts of the training record again (contract.json: fixed conversations of one to four turns with system and
tools, and some rows), with the current tokenizer, template and settings, and compares text and ids.

## Why it is bad
A model answers the prompts that it knows. With another header, system prompt or control token, it gets something that
it never saw: answers lose their format, or do not stop.

## Example

```yaml
look: {stopped: 2}
contract: true
prompts: ["1 turn: the text is '<|user|>\\nWhere is', not '<|im_start|>user\\nWher'"]
```

## Use instead

```yaml
look: {stopped: 8}
contract: true
```

## Fix safety
There is no automatic fix: serve with the tokenizer and chat template next to the trained weights, and with the template
settings of the run (`template_kwargs` in run.json).

## References

- ollama/ollama#6823, unslothai/unsloth#3899, hiyouga/LLaMA-Factory#6320
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

RECORD_FILE = "contract.json"


class PromptIsNotTheTrainedOne(CauseRule):
    code = "CAU004"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "error"
    since = "0.1.0"
    spoils = "model"
    file_rules = ("prompts-differ-from-training",)

    def unmet(self) -> Unmet | None:
        if self.subject.contract:
            return None
        return Unmet("there is no contract.json from its training", "train with truetune train")

    def measurement_if_clean(self) -> str:
        """That none of the prompts in contract.json comes out otherwise."""
        return "0 of the prompts in contract.json differ"

    def findings(self) -> Iterator[Finding]:
        # Those that say what differs stand first: the first one is the message.
        different = sorted(self.subject.prompts, key=lambda text: ": " not in text)
        if different:
            yield self.finding(
                f"the prompts differ from those of the training: {different[0]}",
                "use the tokenizer and chat template that were saved with the trained weights, and the template"
                " settings of the run (template_kwargs in run.json)",
                cases=[Case(text, file=RECORD_FILE) for text in different],
                count=len(different),
            )
