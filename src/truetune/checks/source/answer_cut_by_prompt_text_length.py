"""An answer is cut out of the generated text by the prompt's length in characters, which is the wrong place.

## What it does
Follows the result of `generate` of a causal model to the call that decodes it. It fires if `len(prompt)` of a text cuts
token ids. It also fires if it cuts a text that was decoded with `skip_special_tokens=True` although a chat template
wrote special tokens into the prompt. `replace(prompt, "")` and `split(prompt)` find nothing in such a text either.

## Why it is bad
A prompt of 800 characters has about 200 tokens: if the ids are cut at 800, most answers are empty. In the decoded text
the template's special tokens are gone, so the cut is that many characters too late, and each answer loses its
beginning. Scores are low and no error is raised.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out").eval()
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
out = model.generate(**inputs, max_new_tokens=256)
text = tokenizer.decode(out[0], skip_special_tokens=True)
print(text[len(prompt):])
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out").eval()
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
out = model.generate(**inputs, max_new_tokens=256)
print(tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
```

## Fix safety
Safe: the ids of the answer come right after those of the prompt.

## References
- OpenRLHF/OpenRLHF#505, dottxt-ai/outlines#438, huggingface/transformers#17117
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answers_cut_by_characters import (
    answers_cut_by_characters,
    decodings_of_generation,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node

MESSAGES = {
    "ids": "token ids are cut by a number of characters: most of the answer is lost, or all of it",
    "text": "the decoded text is cut by the length of a prompt with special tokens, which the text no longer contains:"
    " each answer loses its beginning",
    "search": "the prompt is searched with its special tokens in a text that was decoded without them: it is never"
    " found, and stays in front of the answer",
}
"""What is cut wrongly -> what is said of it"""


class AnswerCutByPromptTextLength(SourceRule):
    code = "SRC463"
    fault = Fault.ANSWERS_CONTAIN_THEIR_PROMPT
    symptoms = ("odd-metrics", "garbage-output")
    severity = "error"
    looks_at = CodePlaces("texts that are decoded from generate", decodings_of_generation)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for wrong_cut in answers_cut_by_characters(module):
            yield self.finding(
                MESSAGES[wrong_cut.fault],
                "cut the ids by the prompt's tokens, then decode:"
                ' tokenizer.decode(out[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True)',
                cases=[
                    case_of_node(module, wrong_cut.cut),
                    case_of_node(module, wrong_cut.decoding),
                ],
            )
