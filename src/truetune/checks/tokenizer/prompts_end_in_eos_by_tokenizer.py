"""The tokenizer or the template of a chat model ends prompts with EOS.

## What it does
Encodes a word with tokenizer.json and checks whether EOS is added at its end, if the folder has a chat template. It
also renders a question as it is served, and fires if the prompt ends with EOS after a mark of the template
(`[/INST]</s>`), so that EOS comes directly before each answer.

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
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat


class PromptsEndInEosByTokenizer(DataRule):
    code = "TOK015"
    fault = Fault.EOS_ENDS_PROMPTS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet without a chat template: plain texts that are trained should end in EOS."""
        return NO_TEMPLATE if self.probes.template is None else None

    def measurement_if_clean(self) -> str:
        """What a plain encode adds at the end."""
        return "a plain encode adds no EOS at the end"

    def findings(self) -> Iterator[Finding]:
        if self.probes.template is None:
            return
        yield from self._finding_on_template()
        if not self.tokenizer.adds_eos:
            return
        eos = self.tokenizer.special["eos"]
        yield self.finding(
            f"tokenizer.json adds {eos.token} ({eos.id}) at the end of each text, prompts included: a prompt sent as"
            " plain text ends before the answer",
            "remove EOS from the post_processor in tokenizer.json (or set it to null if it adds nothing else), and"
            " set add_eos_token to false in tokenizer_config.json",
            severity="warning",
            evidence=["the chat template already ends turns"],
        )

    def _finding_on_template(self) -> Iterator[Finding]:
        """The finding on a template that writes EOS between the last mark of a prompt and the answer."""
        eos = self.tokenizer.special.get("eos")
        prompt = self.probes.text(alternating_chat(QUESTION), add_generation_prompt=True)
        trained = self.probes.text(alternating_chat(QUESTION, ANSWER))
        if eos is None or prompt is None or trained is None or QUESTION not in prompt:
            return
        tail = prompt.rpartition(QUESTION)[2]
        mark = tail.rstrip().removesuffix(eos.token).strip()
        # Right after the question, EOS may be the only mark that turns have (DialoGPT).
        if not tail.rstrip().endswith(eos.token) or not mark:
            return
        before_answer = trained.partition(QUESTION)[2].partition(ANSWER)[0]
        if before_answer.strip() != tail.strip():
            return
        yield self.finding(
            f"the chat template ends prompts with {eos.token} ({eos.id}): {tail!r} comes before each answer, so the"
            " model reads that the text is over and then has to answer",
            f"write {eos.token} after answers only, and remove it after {mark!r} in the chat template",
            severity="error",
            evidence=[f"the prompt ends with {prompt[-40:]!r}"],
        )
