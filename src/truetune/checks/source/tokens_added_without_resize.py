"""Tokens are added to the tokenizer, but the model's embedding is not resized.

## What it does
Looks for `add_special_tokens` or `add_tokens` on a tokenizer in a file that loads a model, or has a trainer load it
(`SFTTrainer("name")`), and never calls `resize_token_embeddings`. It warns if the model is known to have no row for
them, by its files or by its name. If nothing is known about the model, which may have been made with these tokens, it
is info in a file that trains and not reported elsewhere. The same holds for a model in a branch for its name (`if
"gemma" in name`). Other files that are checked together count as well.

## Why it is bad
A token that is not in the vocabulary gets an id after the last row of the embedding: an index error or a CUDA assert,
and for a pad token only in batches that need padding.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.add_special_tokens({"pad_token": "[PAD]"})
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.pad_token = "<|finetune_right_pad_id|>"
```

## Fix safety
Llama 3.1 already contains `<|finetune_right_pad_id|>`, so nothing is added or resized. A vocabulary without a free
token needs `model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)` after the token is added.

## References
- meta-llama/llama-cookbook#189, meta-llama/llama3#310, huggingface/transformers#23401, lm-sys/FastChat#3266
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding, Severity
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.added_tokens_new_to_model import (
    TOKENS_ADDED,
    AddedTokens,
    added_tokens_unknown_to_model,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.pad_token_candidates_instead_of_eos import advise_pad_token
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

# Chosen by the published vocabularies, whose reserved tokens are called so.
RESERVED = "<|"
"""How tokens begin that many vocabularies hold in reserve"""
PPO = ("trl.*PPOTrainer", "trl.*RLOOTrainer")
"""They put the id 0 where the mask is 0, before any model sees the pad"""
TRAIN = ("trainer", "optimizer")
RESIZE = (
    "call model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64) (on trainer.model"
    " if the trainer loads it), or use a token that is already in the vocabulary"
)


class TokensAddedWithoutResize(SourceRule):
    code = "SRC045"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = TOKENS_ADDED

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions("resize_token_embeddings") or not _loads_model_without_ppo_trainer(
            module
        ):
            return
        for added in added_tokens_unknown_to_model(module):
            new = [name for name in added.names if not name.startswith(RESERVED)]
            if not new or _has_free_embedding_rows(added, len(new)):
                continue
            if added.spare_rows is not None:
                yield self._finding_on_tokens(
                    added,
                    new,
                    self.severity,
                    "",
                    "the embedding of this model has no row without a token",
                )
            elif _makes_trainer_or_optimizer(module):
                yield self._finding_on_tokens(
                    added,
                    new,
                    "info",
                    ": this raises an index error if the model has no row for it",
                    "it is not known how many rows this model's embedding has",
                )

    def _finding_on_tokens(
        self, added: AddedTokens, new: list[str], severity: Severity, limit: str, evidence: str
    ) -> Finding:
        """The finding on new tokens; `limit` says when they harm, where that is not known."""
        return self.finding(
            f"{', '.join(new)} is added to the tokenizer, but the embedding is not resized{limit}",
            _advice_to_resize_or_reuse_token(self.subject, added),
            severity=severity,
            evidence=[evidence],
            cases=[case_of_node(self.subject, added.call.node)],
        )


def _makes_model_itself_or_by_trainer(module: Module, call: Call) -> bool:
    """Does it make a model, or have a trainer make one (`SFTTrainer("name", ...)`)?"""
    if "model" in module.flow.types(call.node):
        return True
    model = call.argument(0, "model") if call.named("trl.*Trainer") else None
    return model is not None and isinstance(module.flow.value(model), str)


def _advice_to_resize_or_reuse_token(module: Module, added: AddedTokens) -> str:
    """A resize; of a pad token, where the vocabulary has a free one, that one and no resize."""
    tokens = added.call.argument(0, "special_tokens_dict")
    roles = module.flow.dict_entries_and_if_complete(tokens)[0].keys() if tokens is not None else ()
    advice = advise_pad_token(module, added.call.receiver) if set(roles) == {"pad_token"} else None
    if advice is not None and advice.token is not None:
        return advice.remedy
    return RESIZE


def _has_free_embedding_rows(added: AddedTokens, count: int) -> bool:
    """Has the embedding so many rows that no token has yet?"""
    return added.spare_rows is not None and added.spare_rows >= count


def _makes_trainer_or_optimizer(module: Module) -> bool:
    """Does the program make a trainer or an optimizer?"""
    calls = (call for part in module.self_and_files_run_together for call in part.all_calls)
    return any(not module.flow.types(call.node).isdisjoint(TRAIN) for call in calls)


def _loads_model_without_ppo_trainer(module: Module) -> bool:
    """Does the program load a model? Not where a trainer for PPO is made, which resizes by itself."""
    calls = [call for part in module.self_and_files_run_together for call in part.all_calls]
    return any(_makes_model_itself_or_by_trainer(module, call) for call in calls) and not any(
        call.named(*PPO) for call in calls
    )
