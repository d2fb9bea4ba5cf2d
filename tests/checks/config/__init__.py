"""The rules on settings, each stack's own file read by the real reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checks.pages.config import lay_out
from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import all_rules
from truetune.settings.stacks.read_config_of_any_stack import read_config


def found(folder: Path, config: dict[str, Any], **more: Any) -> dict[str, list[Finding]]:
    """Rule -> its findings in these settings; `more` as in a rule's page (files, weights, ages)."""
    read = read_config(lay_out({"config": config, **more}, folder))
    by_rule = {rule.name(): list(rule(read).findings()) for rule in all_rules("config")}
    return {name: findings for name, findings in by_rule.items() if findings}
