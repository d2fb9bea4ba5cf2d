"""Finds where labels that equal the pad id are masked: by a collator, by hand, or by the trainer of
an older TRL.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from truetune.checks.source.evidence.label_masking_and_padding import (
    lm_collators_masking_by_id,
    maskings_of_pad_id,
    tokenizer_of_pad_id,
)
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    PadSetting,
    is_setting_of_tokenizer_in_other_file,
)
from truetune.checks.source.evidence.trl_release_of_trainer import reason_for_earlier_release
from truetune.settings.release_windows_of_removed_names import PAD_MASKED_BY_ID
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


class PadMasking(NamedTuple):
    """One place where labels that equal the pad id are masked."""

    node: ast.AST
    home: Module
    tokenizer: ast.expr | None
    why_by_trainer: str = ""
    """Why it is sure that a trainer of an older TRL masks here; empty where a collator or the script itself does"""

    def has_pads_of_setting(self, module: Module, setting: PadSetting) -> bool:
        """Does the masking see the pads of this setting? In one file that is taken for granted."""
        return self.home is module or is_setting_of_tokenizer_in_other_file(
            module, setting, self.home, self.tokenizer
        )

    def describe_place(self, module: Module) -> str:
        """The place of the masking in words, for a finding of this file."""
        if self.why_by_trainer:
            return f"TRL up to {PAD_MASKED_BY_ID.last} masks every label whose id is the pad's: {self.why_by_trainer}"
        where = "" if self.home is module else f" of {Path(self.home.path).name}"
        return (
            f"line {self.home.place(self.node)[0]}{where} masks every label whose id is the pad's"
        )


def pad_maskings_for_settings(module: Module, settings: list[PadSetting]) -> list[PadMasking]:
    """What masks pads by their id: in this file, and in those that it runs with, where it gets the
    same tokenizer.

    An older trainer masks only where no collator does.
    """
    own = _pad_maskings_of_module(module)
    others = [
        sink
        for part in module.self_and_files_run_together[1:]
        for sink in _pad_maskings_of_module(part)
    ]
    maskings = own + [
        sink for sink in others if any(sink.has_pads_of_setting(module, one) for one in settings)
    ]
    return [sink for sink in maskings if not sink.why_by_trainer] or maskings


def _pad_maskings_of_module(module: Module) -> list[PadMasking]:
    """What masks pads by their id in one file."""
    maskings = [
        PadMasking(call.node, module, _tokenizer_of(call))
        for call in lm_collators_masking_by_id(module)
    ]
    # Nothing masks by the pad id without naming it: the walk over the tree is spared.
    if "pad_token_id" in module.text:
        maskings += [
            PadMasking(node, module, tokenizer_of_pad_id(module, node))
            for node in maskings_of_pad_id(module)
        ]
    trainers = _trainers_masking_by_id_with_reason(module)
    return maskings + [
        PadMasking(node, module, _tokenizer_of(module.flow.call(node)), why)
        for node, why in trainers
    ]


def _tokenizer_of(call: Call) -> ast.expr | None:
    """The tokenizer that a collator or a trainer is given."""
    return (
        call.keywords.get("tokenizer")
        or call.keywords.get("processing_class")
        or call.argument(0, "tokenizer")
    )


def _trainers_masking_by_id_with_reason(module: Module) -> list[tuple[ast.Call, str]]:
    """The SFTTrainers that a TRL runs whose own collator masks by id, and why that is sure."""
    calls = (
        call for call in module.calls("trl.SFTTrainer") if "data_collator" not in call.keywords
    )
    return [
        (call.node, why)
        for call in calls
        if (why := reason_for_earlier_release(module, call, PAD_MASKED_BY_ID)) is not None
    ]
