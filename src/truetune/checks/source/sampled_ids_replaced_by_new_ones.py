"""A policy is trained on its answers after decoding and tokenizing them again: not on the ids that were sampled.

## What it does
Looks at files with a policy loss of their own (a backward pass, log-probabilities, rewards or advantages). It fires if
the text of a tokenizer's `decode` or `batch_decode` is given to the same tokenizer again, in one function. Functions
that score, and those whose names speak of a judge or a reward model, are left out: those read texts. A text that a
function computes from the answer, such as a tool's result, is another text, and is not reported.

## Why it is bad
Decoding and tokenizing is no way back: "un" + "load" may come back as "unload", and special tokens are lost. The
log-probabilities are then those of tokens that were not sampled, so the policy gradient is of another answer; KL and
ratio jump. An answer that was cut in the middle of a word also ends in other tokens, and the stop token may be missing.

## Example
```python
import torch

for batch in batches:
    sampled = policy.generate(**batch["prompts"], max_new_tokens=256, do_sample=True)
    texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    rewards = torch.tensor(score(texts))
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    logps = logps_of(policy, inputs["input_ids"])
    advantages = rewards - rewards.mean()
    loss = -(logps * advantages).mean()
    loss.backward()
```

## Use instead
```python
import torch

for batch in batches:
    sampled = policy.generate(**batch["prompts"], max_new_tokens=256, do_sample=True)
    texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
    rewards = torch.tensor(score(texts))
    logps = logps_of(policy, sampled)
    advantages = rewards - rewards.mean()
    loss = -(logps * advantages).mean()
    loss.backward()
```

## Fix safety
Safe: the ids are available. With several turns, append the ids of the tool's result to those that were sampled, and
tokenize only that result.

## References
- huggingface/trl#5224 ("tokenize once, never re-tokenize"), rllm-org/rllm#272, modelscope/ms-swift#10012,
  stanford-cs336/assignment5-alignment#15, jingyaogong/minimind#850
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.texts_held_by_a_text import texts_held_by
from truetune.checks.source.evidence.wrong_signs_of_policy_losses import ADVANTAGE, backward_losses
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

DECODING = ("decode", "batch_decode")
ENCODING = ("encode", "encode_plus", "batch_encode_plus", "__call__")
LOG_PROBABILITIES = re.compile(r"log_?p(?:rob)?s?|log_softmax", re.I)
SCORING = re.compile(r"reward|score|judge|grade|evaluat|critic|log_|print", re.I)
"""Words of functions that read texts, and give no ids to the policy"""


class NewIds(NamedTuple):
    """A tokenizer's call on a text that the same tokenizer has decoded."""

    encoding: ast.Call
    decoding: ast.Call


def _decodings_in_policy_trainings(module: Module) -> Iterator[Call]:
    """Calls that decode ids, in files with a policy loss of their own."""
    has_loss = next(backward_losses(module), None) is not None
    if has_loss and ADVANTAGE.search(module.text) and LOG_PROBABILITIES.search(module.text):
        yield from module.methods(*DECODING)


class SampledIdsReplacedByNewOnes(SourceRule):
    code = "SRC543"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    looks_at = CodePlaces("decoded answers of own policy training", _decodings_in_policy_trainings)

    def findings(self) -> Iterator[Finding]:
        """Findings on answers that are tokenized again."""
        for new_ids in _texts_tokenized_again(self.subject):
            yield self.finding(
                "the answers are decoded, and the same tokenizer makes ids of the text again: these may be others than"
                " those sampled, and their log-probabilities are trained",
                "keep the ids that generate() returned, compute log-probabilities on them, and remove the second call"
                " of the tokenizer",
                cases=[
                    case_of_node(self.subject, new_ids.encoding),
                    case_of_node(self.subject, new_ids.decoding),
                ],
            )


def _texts_tokenized_again(module: Module) -> Iterator[NewIds]:
    """The calls of a tokenizer on what it has decoded in the same function, outside of functions that score."""
    decodings = {
        call.node: ast.unparse(call.receiver)
        for call in _decodings_in_policy_trainings(module)
        if call.receiver is not None
    }
    if not decodings:
        return
    tokenizers = set(decodings.values())
    for call in module.nodes(ast.Call):
        tokenizer, text = _tokenizer_and_text(call)
        if tokenizer not in tokenizers or text is None or _is_in_scoring_function(module, call):
            continue
        scope = _function_around(module, call)
        for part in texts_held_by(module, text):
            if not isinstance(part, ast.Call) or decodings.get(part) != tokenizer:
                continue
            if _function_around(module, part) is scope:
                yield NewIds(call, part)
                break


def _function_around(module: Module, node: ast.AST) -> ast.AST:
    """The function that a node is in; the module where it is in none."""
    around = list(module.parents(node))
    functions = (one for one in around if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return next(functions, around[-1] if around else node)


def _tokenizer_and_text(call: ast.Call) -> tuple[str, ast.expr | None]:
    """The tokenizer that a call may be of, and the text that it gets."""
    text = call.args[0] if call.args else None
    if text is None:
        text = next((one.value for one in call.keywords if one.arg == "text"), None)
    if isinstance(call.func, ast.Attribute) and call.func.attr in ENCODING:
        return ast.unparse(call.func.value), text
    return ast.unparse(call.func), text


def _is_in_scoring_function(module: Module, call: ast.Call) -> bool:
    """Is a call within a function whose name says that it reads texts?"""
    return any(
        isinstance(around, ast.FunctionDef) and SCORING.search(around.name) is not None
        for around in module.parents(call)
    )
