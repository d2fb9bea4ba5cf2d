"""Drops the finding of a missing pad token if the training scripts set one: the tokenizer's files
say nothing of such a run.

A script that sets `tokenizer.pad_token = tokenizer.unk_token` never falls back to EOS. One that sets EOS itself does
what the finding on the files warns of, and is judged by rules on scripts besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    pad_settings,
)
from truetune.checks.tokenizer.pad_missing import PadMissing
from truetune.errors import TruetuneError
from truetune.source.parsed_source_file import read_module


def drop_pad_finding_set_by_scripts(
    findings: Sequence[Finding], scripts: Sequence[str]
) -> tuple[Finding, ...]:
    """The findings, without that of a missing pad token where each training script sets one that is not EOS."""
    name = PadMissing.name()
    if not scripts or not any(one.rule == name for one in findings):
        return tuple(findings)
    if not all(map(_does_script_set_own_pad, scripts)):
        return tuple(findings)
    return tuple(one for one in findings if one.rule != name)


def _does_script_set_own_pad(script: str) -> bool:
    """Does a script set a pad token of its own, in each place that sets one?"""
    try:
        settings = list(pad_settings(read_module(Path(script))))
    except (TruetuneError, OSError):
        return False
    return bool(settings) and not any(one.eos for one in settings)
