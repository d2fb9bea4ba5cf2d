"""Tokens are added, or were never trained, and an adapter leaves their embedding rows frozen.

## What it does
Looks for `add_tokens` or `add_special_tokens` with new tokens, and a `LoraConfig` that names neither `modules_to_save`
nor `trainable_token_indices`, nor the embedding among its targets. It is an error if the model is known not to have the
tokens (by its files or its name), or if the file resizes the embedding for them, and info otherwise. TRL's
`clone_chat_template` adds the tokens of another model. If a `LoraConfig` gets `**settings` from YAML or JSON, that file
is read if it is next to the script. Nothing is reported in a branch for models of one name (`if "gemma" in name`).

Some bases have never trained their chat tokens (Llama 3, Llama 3.1, Qwen 1). It is a warning if a file loads such a
base by its published name and uses the chat tokens, in its text or by the tokenizer of the instruct model.

## Why it is bad
LoRA does not train `embed_tokens` and `lm_head`: the rows of the new tokens keep their random initial values, and are
not in the saved adapter. The model never writes the new tokens.

## Example
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.add_tokens(["<call>", "</call>"])
config = LoraConfig(r=16, target_modules=["q_proj", "v_proj"])
```

## Use instead
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.add_tokens(["<call>", "</call>"])
new_ids = tokenizer.convert_tokens_to_ids(["<call>", "</call>"])
config = LoraConfig(
    r=16,
    target_modules=["q_proj", "v_proj"],
    trainable_token_indices={"embed_tokens": new_ids, "lm_head": new_ids},
)
```

## Fix safety
With `trainable_token_indices` only the rows of the new tokens are trained and saved. If the embeddings are tied
(`tie_word_embeddings` in config.json), name only `embed_tokens`. `modules_to_save=["embed_tokens", "lm_head"]` trains
and saves both matrices whole: it needs more memory and a larger file.

## References
- meta-pytorch/torchtune#2429, unslothai/unsloth#929 (marks of Llama 3's bases)
- artidoro/qlora#214, huggingface/peft#334, huggingface/peft#1300, axolotl-ai-cloud/axolotl#1570
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import (
    are_base_and_instruct_model,
    chat_markers_base_never_trained,
    explain_different_weights,
)
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.added_tokens_new_to_model import (
    TOKENS_ADDED,
    AddedTokens,
    added_tokens_of_unknown_text,
    added_tokens_unknown_to_model,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.script_arguments_from_settings_files import (
    settings_spread_into_call,
    surely_lacks_argument,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SETTINGS_THAT_TRAIN_TOKENS = ("modules_to_save", "trainable_token_indices")
MODEL_LOADS = ("transformers.AutoModel*.from_pretrained", "transformers.*For*LM.from_pretrained")
TOKENIZER_LOADS = ("transformers.*Tokenizer*.from_pretrained",)
EMBEDDINGS = ("embed_tokens", "lm_head", "wte")


class BaseWithMarks(NamedTuple):
    """A base that a file loads, which never trained the marks of the chats that it is tuned on."""

    load: Call
    name: str
    marks: tuple[str, ...]


def _base_with_untrained_chat_marks(module: Module) -> BaseWithMarks | None:
    """The base of a file whose chats have marks that it never trained; None where none is known."""
    if module.this_or_linked_file_imports_unsloth:
        return None  # it gives such rows the mean of the others when training begins
    for load in module.calls(*MODEL_LOADS):
        name = module.flow.value(load.argument(0, "pretrained_model_name_or_path"))
        marks = chat_markers_base_never_trained(name) if isinstance(name, str) else ()
        if marks and (
            any(mark in module.file_text for mark in marks)
            or _loads_tokenizer_of_instruct_model(module, name)
        ):
            return BaseWithMarks(load, name, marks)
    return None


def _loads_tokenizer_of_instruct_model(module: Module, base: str) -> bool:
    """Does the file load the tokenizer of the instruct model of this base, with its template?"""
    names = (
        module.flow.value(call.argument(0, "pretrained_model_name_or_path"))
        for call in module.calls(*TOKENIZER_LOADS)
    )
    return any(
        isinstance(name, str)
        and explain_different_weights(name, base) is None
        and are_base_and_instruct_model(name, base)
        for name in names
    )


def _targets_embedding(module: Module, config: Call) -> bool:
    """Is an embedding, or the head, among the modules that an adapter is put on?"""
    possible = [module.flow.value(config.keywords.get("target_modules"))]
    possible += [
        one.get("target_modules") for one in settings_spread_into_call(module, config) or ()
    ]
    return any(isinstance(one, list) and not set(one).isdisjoint(EMBEDDINGS) for one in possible)


def _tokens_added_in_run(module: Module) -> list[AddedTokens]:
    """The tokens that a file, or one that runs with it, adds to what the model has."""
    return [
        added
        for part in module.self_and_files_run_together
        for added in (
            *added_tokens_unknown_to_model(part, without_pad=True),
            *added_tokens_of_unknown_text(part),
        )
    ]


def _switches_embedding_gradients_on(module: Module) -> bool:
    """Are gradients switched on for an embedding: `model.get_input_embeddings().weight.requires_grad = True`?"""
    switched: list[ast.expr] = [
        target
        for node in module.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad"
    ]
    switched += [call.node.func for call in module.methods("requires_grad_")]
    return any(
        word in ast.unparse(target) for target in switched for word in (*EMBEDDINGS, "embeddings")
    )


def _lora_configs_beside_untrained_tokens(module: Module) -> Iterator[Call]:
    """The LoRA configs of a file that adds tokens, or whose base never trained some."""
    if (
        _tokens_added_in_run(module)
        or TOKENS_ADDED.count_in(module)
        or _base_with_untrained_chat_marks(module) is not None
    ):
        yield from module.calls("peft.LoraConfig")


class AddedTokensLeftFrozen(SourceRule):
    code = "SRC052"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("LoRA configs beside added tokens", _lora_configs_beside_untrained_tokens)

    def findings(self) -> Iterator[Finding]:
        """Findings on tokens that are added, or were never trained, and whose embedding rows an
        adapter leaves frozen.
        """
        module = self.subject
        new = _tokens_added_in_run(module)
        base = _base_with_untrained_chat_marks(module)
        if any(map(_switches_embedding_gradients_on, module.self_and_files_run_together)):
            return
        for call in module.calls("peft.LoraConfig") if new or base else ():
            lacks = all(
                surely_lacks_argument(module, call, name) for name in SETTINGS_THAT_TRAIN_TOKENS
            )
            if not lacks or _targets_embedding(module, call):
                continue
            if new:
                yield self._finding_on_added_tokens(call, new)
            elif base is not None:
                yield self._finding_on_untrained_chat_marks(call, base)

    def _finding_on_added_tokens(self, call: Call, new: list[AddedTokens]) -> Finding:
        """The finding on tokens that the file adds."""
        module = self.subject
        proved = [added for added in new if added.model_known]
        certain = bool(proved) or (
            any(added.names for added in new) and module.mentions("resize_token_embeddings")
        )
        return self.finding(
            "tokens are added, and the adapter leaves their embedding rows frozen"
            + ("" if certain else ", unless the model already has these tokens"),
            'set trainable_token_indices={"embed_tokens": ids, "lm_head": ids} in LoraConfig, with ids ='
            " tokenizer.convert_tokens_to_ids([...]) of the new tokens (without lm_head if embeddings are tied), or"
            ' set modules_to_save=["embed_tokens", "lm_head"]',
            severity=self.severity if certain else "info",
            cases=[
                case_of_node(module, call.node),
                case_of_node(module, (proved or new)[0].call.node),
            ],
        )

    def _finding_on_untrained_chat_marks(self, call: Call, base: BaseWithMarks) -> Finding:
        """The finding on marks of chats that the base never trained."""
        module = self.subject
        return self.finding(
            f"the base {base.name} was never trained on {', '.join(base.marks)}, and the adapter leaves"
            " their embedding rows frozen",
            "start from the instruct model, or set trainable_token_indices in LoraConfig to"
            ' {"embed_tokens": ids, "lm_head": ids}, with ids = tokenizer.convert_tokens_to_ids([...]) of these tokens',
            severity="warning",
            cases=[case_of_node(module, call.node), case_of_node(module, base.load.node)],
        )
