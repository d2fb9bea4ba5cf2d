"""A script prompts with tokens that training added, but its tokenizer does not have them.

## What it does
Looks at a script that loads what another script of the folder trained, and writes into its prompts a token that the
training added to its tokenizer (`add_special_tokens`, `add_tokens`). It fires if the script loads its tokenizer by the
name that the training started from, and adds nothing itself.

## Why it is bad
The base's tokenizer cuts the token into pieces that were never trained on: the model sees another prompt, does not
stop, or writes noise, and the token that ends its answers is not recognised. The base also lacks the rows that were
added to the embedding in training.

## Example
```python
# fit.py: import transformers, trl; t = transformers.AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.3"); t.add_tokens(["<|reply|>"]); trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.3")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", device_map="auto")
model = PeftModel.from_pretrained(model, "out")
inputs = tokenizer(f"{question}<|reply|>", return_tensors="pt")
model.generate(**inputs, max_new_tokens=200)
```

## Use instead
```python
# fit.py: import transformers, trl; t = transformers.AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.3"); t.add_tokens(["<|reply|>"]); trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", device_map="auto")
model.resize_token_embeddings(len(tokenizer))
model = PeftModel.from_pretrained(model, "out")
inputs = tokenizer(f"{question}<|reply|>", return_tensors="pt")
model.generate(**inputs, max_new_tokens=200)
```

## Fix safety
The training must have saved its tokenizer (`tokenizer.save_pretrained`; TRL's trainer does). Ids are assigned in the
order in which tokens are added, so if you add them again yourself, keep that order.

## References
- huggingface/peft#349, huggingface/transformers#23401, hiyouga/LLaMA-Factory#2684
"""  # noqa: E501

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.added_tokens_new_to_model import added_tokens_unknown_to_model
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_forms import (
    asks_model_and_trains_none,
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    training_scripts_beside,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    model_names_of_tokenizer,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TOKENIZERS = ("transformers.*Tokenizer*.from_pretrained",)
ADDS = ("add_special_tokens", "add_tokens", "resize_token_embeddings")


class MissingTokens(NamedTuple):
    """Tokens that a training added, and a script that asks with them loads without them."""

    loads: Call
    """The tokenizer's load in the script that asks"""
    token: str
    written: ast.AST
    """Where the script writes the token"""
    training: Module
    adds: Call


def _tokenizer_loads_of_inference_files(module: Module) -> Iterator[Call]:
    """Where a file that trains nothing, and asks a model, loads its tokenizer."""
    adds = any(call for part in module.self_and_files_run_together for call in part.methods(*ADDS))
    if asks_model_and_trains_none(module) and not adds:
        yield from module.calls(*TOKENIZERS)


def _tokens_missing_from_tokenizer(module: Module, loads: Call) -> MissingTokens | None:
    """The training beside a file whose tokens this tokenizer lacks; None where there is none."""
    name = module.flow.value(loads.argument(0, "pretrained_model_name_or_path"))
    loaded = loaded_model_names(module)
    # A name that only the run knows may be the folder that the training wrote.
    for training in training_scripts_beside(module) if isinstance(name, str) else ():
        folders = model_folders_written(training)
        # The folder of the training holds the tokenizer with its tokens: that load is right.
        if is_model_in_written_folders(str(name), folders) or not any(
            is_model_in_written_folders(one, folders) for one in loaded
        ):
            continue
        for added in added_tokens_unknown_to_model(training, without_pad=True):
            if name not in model_names_of_tokenizer(training, added.call.receiver):
                continue
            for token in added.names:
                written = next(_texts_with_token(module, token), None)
                if written is not None:
                    return MissingTokens(loads, token, written, training, added.call)
    return None


def _texts_with_token(module: Module, token: str) -> Iterator[ast.AST]:
    """The texts of a file that hold a token, but for docstrings."""
    for node in module.nodes(ast.Constant):
        is_docstring = isinstance(module.scopes.parent.get(node), ast.Expr)
        if isinstance(node.value, str) and token in node.value and not is_docstring:
            yield node


class TokensAddedAtTrainingOnly(SourceRule):
    code = "SRC104"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "error"
    looks_at = CodePlaces(
        "tokenizers of scripts that ask a model", _tokenizer_loads_of_inference_files
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for loads in _tokenizer_loads_of_inference_files(module):
            added = _tokens_missing_from_tokenizer(module, loads)
            if added is None:
                continue
            name = Path(added.training.path).name
            yield self.finding(
                f"{added.token} was added to the tokenizer in {name}, but the tokenizer loaded here lacks it:"
                " it is cut into pieces that were never trained on",
                "load the tokenizer from the folder that the training saved, and call"
                " model.resize_token_embeddings(len(tokenizer)) before you load an adapter",
                cases=[
                    case_of_node(module, added.loads.node),
                    case_of_node(module, added.written),
                    case_of_node(added.training, added.adds.node),
                ],
            )
            return
