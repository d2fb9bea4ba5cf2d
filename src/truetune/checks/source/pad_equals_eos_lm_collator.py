"""The pad token is EOS, and a collator masks every pad id: EOS is never learned.

## What it does
It finds `pad = eos` in every spelling (attribute, id, `add_special_tokens`, `setattr`,
`from_pretrained(pad_token=...)`) and what masks labels by id: transformers'
`DataCollatorForLanguageModeling(mlm=False)`, or `labels[labels == pad_token_id] = -100`. Where TRL's own collator is
used, which masks by position, it is a note.

## Why it is bad
Every label that equals pad becomes -100, the real EOS with it. The loss looks normal, and the model never stops.

## Example
```python
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

tok = AutoTokenizer.from_pretrained("gpt2")
tok.pad_token = tok.eos_token
collator = DataCollatorForLanguageModeling(tok, mlm=False)
```

## Use instead
```python
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

tok = AutoTokenizer.from_pretrained("gpt2")
tok.add_special_tokens({"pad_token": "<|pad|>"})  # and model.resize_token_embeddings(len(tok))
collator = DataCollatorForLanguageModeling(tok, mlm=False)
```

## Fix safety
Not safe: a pad token of its own makes the vocabulary longer by one, and the model is resized.

## References
- huggingface/transformers#23530, huggingface/transformers#22794, huggingface/trl#976, huggingface/open-r1#494
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.labels import lm_collators, masks_by_id
from truetune.checks.source.pads import PadSetting, mend, pad_settings
from truetune.checks.source.places import at, fix
from truetune.source.module import Module


class PadEqualsEosLmCollator(SourceRule):
    code = "TT702"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        settings = list(pad_settings(module))
        settings = [one for one in settings if not _behind_training(module, one)]
        settings = [s for i, s in enumerate(settings) if s.eos and not any(t.replaces(s) for t in settings[i + 1 :])]
        if not settings:
            return
        sinks = [*(call.node for call in lm_collators(module)), *masks_by_id(module)]
        doubtful = [] if sinks else [*_unknown_collators(module), *_by_position(module)]
        if not sinks and not doubtful:
            return
        for setting in settings:
            yield self.finding(
                "pad is EOS, and labels that equal pad are masked: EOS is never learned, the model will not stop"
                if sinks
                else "pad is EOS: nothing in this file masks labels by id; where something does, EOS is never learned",
                "give the tokenizer a pad token of its own, or mask pads by position (attention_mask)",
                severity=("warning" if setting.if_missing else "error") if sinks else "info",
                evidence=[f"line {module.place(sink)[0]} masks by id" for sink in sinks[:3]]
                + ["only where the tokenizer has no pad token of its own"] * setting.if_missing,
                cases=[at(module, setting.node), *(at(module, sink) for sink in (sinks or doubtful)[:2])],
                fix=fix(module, mend(module, setting), safe=False) if sinks else None,
            )


def _behind_training(module: Module, setting: PadSetting) -> bool:
    """Is it set on a tokenizer that is made after the last training of the same scope? No trainer gets that one."""
    trained = [
        call.node.lineno
        for call in module.methods("train")
        if "trainer" in module.flow.kinds(call.receiver) and module.scopes.of[call.node] is setting.scope
    ]
    made = module.flow.made(setting.tokenizer)
    if not trained or made is None or module.scopes.of[made.node] is not setting.scope:
        return False
    return made.node.lineno > max(trained)


def _by_position(module: Module) -> Iterator[ast.expr]:
    """TRL's trainers, which mask pads by position; the tokenizer that they save is used elsewhere too."""
    yield from (call.node for call in module.calls("trl.SFTTrainer") if "data_collator" not in call.keywords)


def _unknown_collators(module: Module) -> Iterator[ast.expr]:
    """Collators that a transformers Trainer is given, and of which this file says nothing."""
    for call in module.calls("transformers.*Trainer"):
        given = call.keywords.get("data_collator")
        if given is None or module.flow.kinds(given) or module.flow.function(given) is not None:
            continue
        if any(isinstance(o.node, (ast.ImportFrom, ast.Import)) for o in module.flow.origins(_called(module, given))):
            yield given


def _called(module: Module, node: ast.expr) -> ast.expr:
    """The class or function whose call a value is; else the value."""
    made = next((o.node for o in module.flow.origins(node) if isinstance(o.node, ast.Call)), None)
    return node if made is None else made.func
