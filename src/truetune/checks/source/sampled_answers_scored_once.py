"""One answer per row is sampled at random and scored: each evaluation gives another score.

## What it does
Looks for `do_sample=True`, and for vLLM's `SamplingParams`, with a temperature of 0.5 or more, in a file that compares
answers with references, prints a score and sets no seed; this is info. A request to a server without a temperature is a
warning: the server uses the one of generation_config.json, or 1. It does not fire if several answers are sampled for a
row (`n`, `num_return_sequences`: pass@k, majority), or in files that train.

## Why it is bad
Two evaluations of one checkpoint differ by a point or several, as much as two checkpoints do. Choosing the best
checkpoint is then partly luck, and a sampled answer is worse than the greedy one if there is a single right answer.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**batch, max_new_tokens=64, do_sample=True, temperature=1.0)
texts = tokenizer.batch_decode(out[:, n:], skip_special_tokens=True)
accuracy = sum(text == row["answer"] for text, row in zip(texts, rows)) / len(rows)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**batch, max_new_tokens=64, do_sample=False)
texts = tokenizer.batch_decode(out[:, n:], skip_special_tokens=True)
accuracy = sum(text == row["answer"] for text, row in zip(texts, rows)) / len(rows)
```

## Fix safety
Scores become repeatable. Some reasoning models repeat themselves when decoded greedily: sample them with the settings
that their authors recommend, several answers for each row, and report the mean with its confidence interval.

## References
- Hochlehnert et al. 2025, A Sober Look at Progress in Language Model Reasoning, arXiv 2504.07086
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.is_answer_compared_with_reference import (
    is_equality_with_reference,
)
from truetune.checks.source.evidence.text_generation_calls import (
    VLLM_SAMPLING,
    generation_request_body,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

# Chosen, not measured. At 0.25 most models still give the same answer; at 1 the usual 0.7 is passed over.
MIN_TEMPERATURE = 0.5
"""From here on answers of tuned models differ between draws in more than a few rows"""
SCORES = re.compile(r"\b(?:acc|accuracy|em|exact_match|correct|hits|right|f1)\b", re.I)
SEEDS = ("set_seed", "manual_seed", "seed=", "seed_everything")
SEVERAL = ("n", "num_return_sequences", "best_of")
DRAWS = re.compile(r"pass@|majority|self.?consisten|num_samples|n_samples|range\(k\)", re.I)


def _possible_sampling_calls(module: Module) -> Iterator[Call]:
    """Calls that may draw answers at random."""
    yield from generate_calls(module)
    yield from module.calls(*VLLM_SAMPLING)
    yield from _requests_to_servers(module)


def _requests_to_servers(module: Module) -> Iterator[Call]:
    """Requests for answers to servers: of a client of OpenAI or Ollama, or posted."""
    for call in module.all_calls:
        is_client = call.method in ("create", "parse") and not {"messages", "prompt"}.isdisjoint(
            call.keywords
        )
        if (
            is_client
            or call.named("ollama.chat", "ollama.generate", "litellm.completion")
            or generation_request_body(module, call) is not None
        ):
            yield call


def _leaves_temperature_to_server(module: Module, call: Call) -> bool:
    """Does a request, all of whose fields are seen, name neither a temperature nor a number of answers?"""
    body = generation_request_body(module, call)
    if body is not None:
        entries, is_whole = module.flow.dict_entries_and_if_complete(body)
        names = set(entries)
        options = entries.get("options") or entries.get("parameters")
    else:
        is_whole, names = not call.open, set(call.keywords)
        options = call.keywords.get("options") or call.keywords.get("extra_body")
    if not is_whole or names & {"temperature", *SEVERAL}:
        return False
    return (
        options is None or "temperature" not in module.flow.dict_entries_and_if_complete(options)[0]
    )


class SampledAnswersScoredOnce(SourceRule):
    code = "SRC100"
    fault = Fault.EVALUATION_NOT_REPEATABLE
    severity = "info"
    looks_at = CodePlaces("calls that may draw answers at random", _possible_sampling_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # A fixed seed makes the score repeatable, and several draws are what it takes to report one.
        if module.mentions(*SEEDS) or DRAWS.search(module.text) or trains_anything(module):
            return
        if not SCORES.search(module.text) or not _compares_with_reference(module):
            return
        if "temperature" not in module.text:
            yield from self._findings_on_requests_without_temperature()
        for call in (*generate_calls(module), *module.calls(*VLLM_SAMPLING)):
            temperature = _high_sampling_temperature(module, call)
            if temperature is not None and not any(name in call.keywords for name in SEVERAL):
                yield self.finding(
                    f"answers are sampled at a temperature of {temperature:g} and scored once, without a seed:"
                    " each evaluation gives another score",
                    "set do_sample=False"
                    if call.method == "generate"
                    else "set temperature=0, or n=8 and report the mean with its confidence interval",
                    cases=[case_of_node(module, call.node)],
                )

    def _findings_on_requests_without_temperature(self) -> Iterator[Finding]:
        """Findings on requests that leave the temperature to the server."""
        module = self.subject
        for call in _requests_to_servers(module):
            if _leaves_temperature_to_server(module, call):
                yield self.finding(
                    "the request sets no temperature, and its answers are scored once: the server samples (at the"
                    " temperature of generation_config.json, or at 1), so each evaluation gives another score",
                    "send temperature=0 with the request",
                    severity="warning",
                    cases=[case_of_node(module, call.node)],
                )


def _high_sampling_temperature(module: Module, call: Call) -> float | None:
    """The temperature that answers are drawn at, where that is high; None where they are greedy or it is not known."""
    value = module.flow.value(call.keywords.get("temperature"))
    if call.method == "generate":
        if module.flow.value(call.keywords.get("do_sample")) is not True:
            return None
        # transformers' default temperature is 1.0 where sampling is on.
        value = value if "temperature" in call.keywords else 1.0
    elif "temperature" not in call.keywords and not call.open:
        value = 1.0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value >= MIN_TEMPERATURE else None


def _compares_with_reference(module: Module) -> bool:
    """Is something compared with a reference by `==`?"""
    for node in module.nodes(ast.Compare):
        if is_equality_with_reference(node):
            sides = [node.left, *node.comparators]
            return not all(isinstance(side, ast.Constant) for side in sides)
    return False
