"""The tokenizer of a chat model adds EOS to each text that it encodes.

## What it does
Encodes a word with tokenizer.json and checks whether EOS is added at its end, if the folder has a chat template.

## Why it is bad
A trainer that had `add_eos_token` set saved it. Prompts that are sent as plain text then end with EOS: for the model
the text is over, and it answers with something else or not at all. Chats do not need it, since their template ends
turns.

## Example
```yaml
files:
  tokenizer.json:
    post_processor:
      type: TemplateProcessing
      single: [{Sequence: {id: A, type_id: 0}}, {SpecialToken: {id: "<|im_end|>", type_id: 0}}]
      pair: [{Sequence: {id: A, type_id: 0}}, {Sequence: {id: B, type_id: 1}}]
      special_tokens: {"<|im_end|>": {id: "<|im_end|>", ids: [3], tokens: ["<|im_end|>"]}}
```

## Use instead
```yaml
files:
  tokenizer.json: {post_processor: null}
```

## Fix safety
Safe for chats. A run on plain text then has to add EOS to each text itself.

## References
- ggml-org/llama.cpp#3966
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_data_rules_cannot_judge import NO_TEMPLATE
from truetune.checks.rule import DataRule


class PromptsEndInEosByTokenizer(DataRule):
    code = "TOK015"
    fault = Fault.EOS_ENDS_PROMPTS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without a chat template: plain texts that are trained should end in EOS."""
        return NO_TEMPLATE if self.probes.template is None else None

    def measurement_if_clean(self) -> str:
        """What a plain encode adds at the end."""
        return "a plain encode adds no EOS at the end"

    def findings(self) -> Iterator[Finding]:
        if self.probes.template is None or not self.tokenizer.adds_eos:
            return
        eos = self.tokenizer.special["eos"]
        yield self.finding(
            f"tokenizer.json adds {eos.token} ({eos.id}) at the end of each text, prompts included: a prompt sent as"
            " plain text ends before the answer",
            "remove EOS from the post_processor in tokenizer.json (or set it to null if it adds nothing else), and"
            " set add_eos_token to false in tokenizer_config.json",
            evidence=["the chat template already ends turns"],
        )
