"""Several samples of one prompt are requested with greedy decoding: they are all the same.

## What it does
Looks for calls that request more than one answer (`n`, `num_return_sequences`, `num_generations`) with temperature 0,
or with `do_sample=False` and no beams. Trainers that sample in groups (GRPO, RLOO, online DPO) request several by
default.

## Why it is bad
Equal answers give no preference pair and no advantage: both sides of a pair are equal, a group's rewards have no
spread, and nothing is learned. transformers and vLLM raise an error; servers return copies.

## Example
```python
from openai import OpenAI

client = OpenAI()
answers = client.chat.completions.create(model="policy", messages=[], n=4, temperature=0.0)
```

## Use instead
```python
from openai import OpenAI

client = OpenAI()
answers = client.chat.completions.create(model="policy", messages=[], n=4, temperature=0.9)
```

## Fix safety
There is no automatic fix: how much samples should differ is your choice.

## References
- https://huggingface.co/docs/transformers/main/en/generation_strategies, huggingface/trl#2608
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

COUNTS = ("n", "num_return_sequences", "num_generations")
IN_GROUPS = ("trl.GRPOConfig", "trl.RLOOConfig", "trl.OnlineDPOConfig")
METHODS = ("generate", "create", "completion", "acompletion", "complete", "chat", "parse")
SAMPLERS = ("*SamplingParams", "*.GenerationConfig", "*.completion", "*.acompletion", "*.pipeline")
"""What samples, or says how, by method and by name"""
BEAMS = ("num_beams", "use_beam_search", "num_beam_groups")
GREEDY = ("temperature", "do_sample")


def _calls_for_several_answers(module: Module) -> Iterator[Call]:
    """Calls that ask for more than one answer to a prompt, and say how they are sampled."""
    for call in module.all_calls:
        keywords = call.keywords.keys()
        says = not keywords.isdisjoint(COUNTS) and not keywords.isdisjoint(GREEDY)
        samples = call.method in METHODS or call.named(*SAMPLERS)
        if call.named(*IN_GROUPS) or (says and samples):
            yield call


class SamplesAllGreedy(SourceRule):
    code = "SRC077"
    fault = Fault.SAMPLES_OF_PROMPT_ARE_COPIES
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    looks_at = CodePlaces("calls that ask for several answers", _calls_for_several_answers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _calls_for_several_answers(module):
            count = next((call.keywords[name] for name in COUNTS if name in call.keywords), None)
            answer_count = module.flow.value(count) if count is not None else 2
            if (
                not isinstance(answer_count, int)
                or answer_count < 2
                or not call.keywords.keys().isdisjoint(BEAMS)
                # Beams are several answers without any sampling.
            ):
                continue
            greedy_argument = _greedy_argument(module, call)
            if greedy_argument is not None:
                yield self.finding(
                    f"several answers are requested with {greedy_argument}: they are all the same",
                    "set temperature=0.9 (for generate also do_sample=True), or request one answer",
                    cases=[case_of_node(module, call.node)],
                )


def _greedy_argument(module: Module, call: Call) -> str | None:
    """The argument that makes it greedy, as it is written."""
    if "do_sample" in call.keywords and module.flow.value(call.keywords["do_sample"]) is False:
        return "do_sample=False"
    temperature = (
        module.flow.value(call.keywords["temperature"]) if "temperature" in call.keywords else None
    )
    is_zero = (
        isinstance(temperature, int | float)
        and not isinstance(temperature, bool)
        # bool is a number to Python, and `temperature=False` means something else.
        and temperature == 0
    )
    return f"temperature={temperature:g}" if is_zero else None
