"""The pad token is EOS, and a collator masks every pad id: EOS is never learned.

## What it does
Finds `pad = eos` in every spelling (attribute, id, `add_special_tokens`, `setattr`, `from_pretrained(pad_token=...)`)
together with code that masks labels by id: transformers' `DataCollatorForLanguageModeling(mlm=False)`, `labels[labels
== pad_token_id] = -100`, or the SFTTrainer of TRL up to 0.16.0 (known from the project's pinned version, or from
arguments that later ones do not accept), which uses transformers' collator. Later TRL versions mask by position and are
not reported. `if tokenizer.pad_token is None` is false for a model that has a pad token, so such a line is not reported
there. If the file writes its own chat template that ends turns with another token, EOS is in no row. A collator in
another file counts if that file was also given to truetune and gets the same tokenizer.

## Why it is bad
Every label that equals pad becomes -100, including the real EOS. The loss looks normal, and the model never stops.

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
tok.add_special_tokens({"pad_token": "<|pad|>"})  # gpt2 has no free token: model.resize_token_embeddings(len(tok))
collator = DataCollatorForLanguageModeling(tok, mlm=False)
```

## Fix safety
If the model is known by its name or folder, the fix writes a token of its vocabulary (`<unk>`,
`<|finetune_right_pad_id|>`): this is safe, and nothing is resized. Otherwise the fix is unsafe: a new token makes the
vocabulary one longer, and the model must be resized.

## References
- huggingface/transformers#23530, huggingface/transformers#22794, huggingface/trl#976, huggingface/open-r1#494
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.label_masking_and_padding import maskings_of_eos_id
from truetune.checks.source.evidence.pad_maskings import PadMasking, pad_maskings_for_settings
from truetune.checks.source.evidence.pad_set_to_eos_before_training import (
    eos_pad_settings_at_training,
    with_repeated_settings,
)
from truetune.checks.source.evidence.pad_token_candidates_instead_of_eos import advise_pad_token
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    PadSetting,
    changes_setting_pad_token,
    pad_settings,
)
from truetune.source.make_source_edits import Changes
from truetune.source.parsed_source_file import Module

IF_MISSING = "only if the tokenizer has no pad token yet"


def _pad_settings_and_eos_label_masks(module: Module) -> Iterator[PadSetting | ast.AST]:
    """The pad tokens that are set, and the labels that are masked by the id of EOS itself."""
    yield from pad_settings(module)
    yield from maskings_of_eos_id(module)


class PadEqualsEosLmCollator(SourceRule):
    code = "SRC007"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("pad tokens that are set", _pad_settings_and_eos_label_masks)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        settings = eos_pad_settings_at_training(module)
        masking = pad_maskings_for_settings(module, settings) if settings else []
        reached = [
            one
            for one in settings
            if any(sink.has_pads_of_setting(module, one) for sink in masking)
        ]
        if reached:
            sinks = [
                sink
                for sink in masking
                if any(sink.has_pads_of_setting(module, one) for one in reached)
            ]
            yield self._finding_on_settings(reached, sinks)
        for node in maskings_of_eos_id(module):
            yield self.finding(
                "labels that equal EOS are masked: EOS is never learned, and the model will not stop",
                "mask padding by position: labels[attention_mask == 0] = -100, not by the id of EOS",
                cases=[case_of_node(module, node)],
            )

    def _finding_on_settings(self, reached: list[PadSetting], sinks: list[PadMasking]) -> Finding:
        """The finding on settings whose pads are masked in these places."""
        module = self.subject
        advice = advise_pad_token(module, reached[0].tokenizer)
        places = f" in {len(reached)} places" if len(reached) > 1 else ""
        # A pad that is set only where none is there leaves models alone that bring one, and a release of TRL is guessed
        # from pins or arguments: neither is proof.
        only_missing = all(one.if_missing for one in reached)
        is_likely = only_missing or all(sink.why_by_trainer for sink in sinks)
        evidence = [sink.describe_place(module) for sink in sinks[:3]]
        if only_missing:
            evidence.append(IF_MISSING)
        return self.finding(
            f"pad is EOS{places}, and labels that equal pad are masked: EOS is never learned, the"
            " model will not stop",
            advice.remedy,
            severity="warning" if is_likely else "error",
            evidence=evidence,
            cases=[
                *(case_of_node(module, one.node) for one in reached),
                *(case_of_node(module, sink.node) for sink in sinks[:2]),
            ],
            count=len(reached),
            fix=fix_of_changes(
                module, _edits_of_all_settings(module, reached, advice.token), safe=advice.sure
            ),
        )


def _edits_of_all_settings(
    module: Module, settings: list[PadSetting], token: str | None
) -> Changes:
    """The changes that give every setting this pad token; none where one of them can't be changed.

    Half a fix would leave pad and EOS the same in one branch and say that it was repaired.
    """
    changes = [
        changes_setting_pad_token(module, one, token)
        for one in with_repeated_settings(module, settings)
    ]
    return tuple(change for part in changes for change in part) if all(changes) else ()
