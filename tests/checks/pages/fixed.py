"""Examples on which a rule finds nothing, and what it says of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.checks.pages import block, sections
from tests.checks.pages import config as config_blocks
from tests.checks.pages import data as data_blocks
from truetune.checks.judgement import Examined
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import DATA, station_of_rule
from truetune.checks.rule_runner import run_rules

NOT_APPLYING: dict[str, str] = {
    "answer-is-little-of-the-loss": (
        """
        data: {rows: 40, letter: "{words}", answer: "{words_before}"}
        script: |
          from datasets import load_dataset
          from trl import SFTTrainer

          rows = load_dataset("json", data_files="data.jsonl", split="train")
          rows = rows.map(lambda row: {"text": row["letter"] + " Answer: " + row["answer"]})
          SFTTrainer("some/model", train_dataset=rows).train()
    """
    ),
    "generation-tag-missing": (
        """
        files: {chat_template.jinja: "{% for m in messages %}<|im_start|>{{ m.role }}\\n
          {%- generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endfor %}"}
        spec: {mask_by: generation-tags}
        data: [{messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}]}]
    """
    ),
    "plain-string-pair-skips-template": (
        """
        data: [{prompt: "Open?<|im_end|>\\n<|im_start|>assistant\\n", completion: It is.}]
    """
    ),
    "values-printed-as-python": (
        """
        data: [{messages: [{role: user, content: [{type: text, text: "Open?"}]}, {role: assistant, content: It is.}]}]
    """
    ),
    "rewritten-turns-untrained": (
        """
        spec: {history: single}
        data: [{messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is.}]}]
    """
    ),
}
"""Rules that do not apply to the fixed example of their page, and an example to which they do"""


def fixed(rule: type[Rule[Any]]) -> str:
    """Data on which a rule finds nothing."""
    return NOT_APPLYING.get(rule.name()) or block(sections(rule)["Use instead"])


def examined(rule: type[Rule[Any]]) -> Examined | None:
    """What a rule on data or settings says of its fixed example; None where it does not apply to that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if station_of_rule(rule) in DATA:
            return next(iter(data_blocks.report(rule, fixed(rule), folder).examined), None)
        config = config_blocks.config_of(yaml.safe_load(fixed(rule)), folder)
        return next(iter(run_rules(config, [rule]).examined), None)
