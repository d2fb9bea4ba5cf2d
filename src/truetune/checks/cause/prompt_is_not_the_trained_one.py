"""The prompts are other ones than those that were trained.

## What it does

Makes the prompts of the training record (contract.json: fixed conversations of one to four turns with system and tools,
and some rows) once more, with the tokenizer, the template and the settings of now, and compares text and ids.

## Why it is bad

A model answers the prompt that it knows. With another header, another system prompt or another control token it is
asked something that it never saw: answers lose their form, or do not stop.

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

There is no automatic fix: serve with the tokenizer and chat template that lie beside the trained weights, and with the
template settings of the run (`template_kwargs` of run.json).

## References

- ollama/ollama#6823, unslothai/unsloth#3899, hiyouga/LLaMA-Factory#6320
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

RECORD_FILE = "contract.json"


class PromptIsNotTheTrainedOne(CauseRule):
    code = "CAU004"
    severity = "error"
    since = "0.1.0"
    spoils = "model"
    file_rules = ("prompts-differ-from-training",)

    def unmet(self) -> Unmet | None:
        if self.subject.contract:
            return None
        return Unmet("there is no contract.json of its training", "train with truetune train")

    def measurement_if_clean(self) -> str:
        """That none of the prompts in contract.json comes out otherwise."""
        return "0 of the prompts in contract.json come out otherwise"

    def findings(self) -> Iterator[Finding]:
        # Those that say what differs stand first: the first one is the message.
        different = sorted(self.subject.prompts, key=lambda text: ": " not in text)
        if different:
            yield self.finding(
                f"the prompts are not the trained ones: {different[0]}",
                "use the tokenizer, chat template and template settings of the training",
                cases=[Case(text, file=RECORD_FILE) for text in different],
                count=len(different),
            )
