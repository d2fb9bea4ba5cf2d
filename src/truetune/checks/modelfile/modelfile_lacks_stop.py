"""The Modelfile has no stop for the token that ends turns in its TEMPLATE.

## What it does
Looks at a TEMPLATE in which turns end with a token (`<|im_end|>`, `<|eot_id|>`, `<end_of_turn>`, ...) that no
`PARAMETER stop` names, if FROM names your own weights.

## Why it is bad
Ollama stops at the EOS of the weights and at the stops in the Modelfile. If turns end with another token, answers
continue: the model writes the token, and then the next question itself.

## Example
```text
FROM ./model.gguf
TEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant
PARAMETER num_ctx 8192
```

## Use instead
```text
FROM ./model.gguf
TEMPLATE <|im_start|>user {{ .Prompt }}<|im_end|><|im_start|>assistant
PARAMETER stop <|im_end|>
PARAMETER num_ctx 8192
```

## Fix safety
Safe: the token never occurs within an answer.

## References
- Ollama documentation, "Modelfile Reference", `stop`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.modelfile.classify_weights_named_by_modelfile import is_own_weights
from truetune.checks.rule import ModelfileRule

END_MARKS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "<|eot|>",
    "<|user|>",
)
"""Marks that end a turn; of two in one template, the first that stands behind a prompt"""


class ModelfileLacksStop(ModelfileRule):
    code = "MFL004"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet without a TEMPLATE with a mark that ends turns."""
        if self._turn_end_mark_of_template():
            return None
        return Unmet("it is about a TEMPLATE with a mark that ends turns")

    def measurement_if_clean(self) -> str:
        """The mark that ends turns, and that a stop names it."""
        return (
            f"1 mark ends turns ({self._turn_end_mark_of_template()}), and PARAMETER stop names it"
        )

    def _turn_end_mark_of_template(self) -> str | None:
        """The first mark behind the prompt that ends a turn; None without a TEMPLATE, or where it has none."""
        template = self.subject.last("template")
        # Marks before the prompt may end the system prompt alone.
        behind = template.value.partition(".Prompt")[2] if template is not None else ""
        places = [(behind.index(mark), mark) for mark in END_MARKS if mark in behind]
        return min(places)[1] if places else None

    def findings(self) -> Iterator[Finding]:
        end, base = self._turn_end_mark_of_template(), self.subject.last("from")
        template = self.subject.last("template")
        if end is None or template is None or base is None:
            return
        # Models of Ollama's library bring their stops with them.
        if not is_own_weights(base, self.subject.local_path_of_instruction("from") is not None):
            return
        parameters = [parameter.value for parameter in self.subject.all("parameter")]
        if any(value.startswith("stop") and end in value for value in parameters):
            return
        yield self.finding(
            f"turns in TEMPLATE end with {end}, but no PARAMETER stop names it: unless it is the EOS of the weights,"
            " answers continue without end",
            f'add PARAMETER stop "{end}"',
            cases=[self.case_of_instruction(template)],
        )
