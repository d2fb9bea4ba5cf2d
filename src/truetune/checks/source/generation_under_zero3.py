"""A script generates with a model whose weights are sharded by ZeRO-3.

## What it does
Looks at `generate` and `predict_with_generate=True` in scripts that train under ZeRO-3 (by the code or by the command
that starts it), outside of code that gathers the weights first (`GatheredParameters`, TRL's
`unwrap_model_for_generation`). Files of settings are checked by `zero3-gathers-weights-for-each-token`.

## Why it is bad
Each GPU stores a part of every layer. For each token, every layer is sent to all GPUs again: an evaluation of a few
hundred answers takes hours, and nothing in the log says why. Without `synced_gpus=True`, processes whose answers end
earlier leave the others waiting forever.

## Example
```python
import deepspeed
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
engine, _, _, _ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 3}})
for batch in loader:
    engine.backward(engine(**batch).loss)
    engine.step()
answers = engine.module.generate(**prompts, max_new_tokens=256, synced_gpus=True)
```

## Use instead
```python
import deepspeed
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
engine, _, _, _ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 3}})
for batch in loader:
    engine.backward(engine(**batch).loss)
    engine.step()
with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
    answers = engine.module.generate(**prompts, max_new_tokens=256)
```

## Fix safety
Each GPU needs room for the whole weights while it generates. If they do not fit, generate after the training from the
saved weights, with vLLM or in a run without DeepSpeed.

## References
- deepspeed.ai, "Constructing Massive Models"; huggingface/trl `unwrap_model_for_generation`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.does_script_train_sharded_weights import sharding_of_script
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

GATHERS = ("GatheredParameters", "unwrap_model_for_generation", "summon_full_params")
ENGINES = ("vllm", "LLM(", "sglang")
"""In a script whose answers may come from an engine with weights of its own"""


def _generations_and_trainer_settings(module: Module) -> Iterator[Call]:
    """Calls of `generate`, and settings of trainers that generate."""
    yield from module.methods("generate")
    for call in module.calls("transformers.Seq2SeqTrainingArguments"):
        if module.flow.value(call.keywords.get("predict_with_generate")) is True:
            yield call


class GenerationUnderZero3(SourceRule):
    code = "SRC188"
    fault = Fault.ZERO3_SLOWS_GENERATION
    symptoms = ("slow-generation", "several-gpus")
    severity = "warning"
    looks_at = CodePlaces(
        "calls of generate, and trainers that generate", _generations_and_trainer_settings
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = [
            call
            for call in _generations_and_trainer_settings(module)
            if not _is_in_gathering_block(module, call)
        ]
        if not calls or module.mentions(*ENGINES) or not trains_a_model(module):
            return
        sharding = sharding_of_script(module)
        if sharding is None or sharding.how != "ZeRO-3" or not sharding.certain:
            return
        yield self.finding(
            "answers are generated while ZeRO-3 shards the weights: for each token all weights are gathered from"
            " the GPUs"
            " again",
            "put generate under `with deepspeed.zero.GatheredParameters(list(model.parameters())):`, or generate"
            " after the training from the saved weights, with vLLM or without DeepSpeed",
            evidence=[f"ZeRO-3 is set by {sharding.where}"],
            cases=[case_of_node(module, calls[0].node)],
        )


def _is_in_gathering_block(module: Module, call: Call) -> bool:
    """Does the call stand in a block that gathers the weights first?"""
    around = [node for node in module.parents(call.node) if isinstance(node, ast.With)]
    heads = (module.text_of(item.context_expr) for node in around for item in node.items)
    return any(name in head for head in heads for name in GATHERS)
