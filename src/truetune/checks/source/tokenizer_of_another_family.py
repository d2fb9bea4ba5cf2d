"""Model and tokenizer belong to families with different vocabularies.

## What it does
Traces the model and the tokenizer that one trainer gets, or the ids that a model is called with or generates from. Both
must be loaded under the names of published models whose vocabularies are known to differ. It does not report models
that share one (a base and its chat model, Pythia and GPT-NeoX), models without pretrained weights, and scripts that
write a new embedding.

## Why it is bad
Each id means a different piece of text to the model than to the tokenizer. Training starts from nothing, ids may be
outside the embedding, and answers decode to nonsense.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
trainer = Trainer(model=model, processing_class=tokenizer)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
trainer = Trainer(model=model, processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: the rule can't know which of the two was intended. A model trained with the wrong tokenizer
must be trained again.

## References
- huggingface/transformers#12488, huggingface/transformers#27206
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import only_name_loaded_under
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import (
    encoding_calls_of_dictionary,
    input_ids_argument,
)
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import variable_of_indexed_or_attribute

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
WRITES_EMBEDDING = ("set_input_embeddings", "get_input_embeddings", "from_config")


class ModelWithTokenizer(NamedTuple):
    """A model with a tokenizer that is used with it."""

    where: Call
    model: ast.expr
    tokenizer: ast.expr


def _models_and_tokenizers(module: Module) -> Iterator[ModelWithTokenizer]:
    """Models beside the tokenizers that they are used with: in a trainer, or by ids that a tokenizer made."""
    yield from _models_and_tokenizers_of_trainers(module)
    for call in module.all_calls:
        model = call.receiver if call.method == "generate" else call.node.func
        if model is None or "model" not in module.flow.types(model):
            continue
        for value in _inputs_of_model(call):
            for encoded in encoding_calls_of_dictionary(
                module, variable_of_indexed_or_attribute(value)
            ):
                tokenizer = encoded.receiver or encoded.node.func
                yield ModelWithTokenizer(call, model, tokenizer)


def _models_and_tokenizers_of_trainers(module: Module) -> Iterator[ModelWithTokenizer]:
    """The model and the tokenizer that a trainer is given."""
    for call in module.calls(*TRAINERS):
        model = call.argument(0, "model")
        tokenizer = call.keywords.get("processing_class") or call.keywords.get("tokenizer")
        if model is not None and tokenizer is not None:
            yield ModelWithTokenizer(call, model, tokenizer)


def _inputs_of_model(call: Call) -> list[ast.expr]:
    """The inputs that a model is called with: `**inputs`, and its ids."""
    starred = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    ids = input_ids_argument(call)
    return starred if ids is None else [*starred, ids]


class TokenizerOfAnotherFamily(SourceRule):
    code = "SRC073"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("models that are used with a tokenizer", _models_and_tokenizers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # Who writes the embedding may have brought it into line with the other vocabulary.
        if any(module.methods(*WRITES_EMBEDDING)):
            return
        for pair in _models_and_tokenizers(module):
            model, tokenizer = (
                only_name_loaded_under(module, pair.model),
                only_name_loaded_under(module, pair.tokenizer),
            )
            if model is None or tokenizer is None:
                continue
            groups = vocabulary_group(model), vocabulary_group(tokenizer)
            # A fine-tune under a name of its own has no group that is known: nothing is compared.
            if None not in groups and groups[0] != groups[1]:
                yield self.finding(
                    f"the model {model} has the vocabulary of {groups[0]}, but the tokenizer {tokenizer} that of"
                    f" {groups[1]}: ids mean different texts to them",
                    f'load the tokenizer of this model: from_pretrained("{model}")',
                    cases=[case_of_node(module, pair.where.node)],
                )
                return
