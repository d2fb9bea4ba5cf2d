"""A remedy that names a setting is followed on its own rule's example: the finding ends, and no new one comes.

The remedies are read as a user reads them: `set KEY: VALUE`, `set KEY to VALUE`, `write NAME` (for the key or the value
that the case shows), `leave KEY out`, `remove KEY`, with alternatives behind `, or`.
What names no setting has to be in `PROSE`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.pages import block, sections
from tests.checks.pages.config import config_of
from truetune.checks.findings import RANK, Finding
from truetune.checks.judge_settings import judge_settings
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules, station_of_rule
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config

CONFIG = [rule for rule in all_rules() if station_of_rule(rule) == "config"]
VALUE = r"(?P<value>\[[^\]]*\]|(?!(?:the|what|an?|another)\b)[\w.,+\-]*\w)"
SET = re.compile(
    r"(?:(?:set|and) (?P<key>(?!both\b)\w+): |set (?P<other>(?!both\b)\w+) to |and (?P<more>\w+)"
    rf" to (?=\d)){VALUE}"
)
LEAVE = re.compile(r"leave (?P<key>\w+) out|remove (?P<gone>\w+)")
WRITE = re.compile(r"write (?P<new>(?!to\b)\w+)(?: for (?P<old>\w+))?")
PROSE = {
    "merge-skips-a-layer", "merge-parameters-not-read", "merge-weights-out-of-range",
    "answers-do-not-fit-into-the-engine", "reward-weights-do-not-match-functions", "kl-penalty-counted-twice",
    "normalized-leave-one-out-explodes", "entropy-bonus-outweighs-the-reward", "many-updates-on-one-rollout",
    "overlong-buffer-does-not-fit-the-answers",
    "role-tags-differ-from-rows", "grouped-answers-cannot-differ", "trained-weights-not-saved",
    "quantized-otherwise-than-trained",
    "schedule-ends-at-a-high-rate", "recipe-builds-another-model-release", "generation-limit-below-answers",
    "deepspeed-settings-contradict", "deepspeed-key-not-read",
    "deepspeed-schedule-sets-another-rate", "lora-rank-1-on-one-projection",
    "evaluated-more-than-trained",
    "settings-evaluate-head-of-sorted-file",
    "duplicate-setting", "warmup-longer-than-run", "pure-bf16-updates-rounded-away", "precision-set-twice",
    "new-tokens-left-untrained", "tied-head-trained-alone",
    "pretokenized-rows-bypass-masking", "prepared-rows-older-than-data",
    "served-template-differs",
    "pad-masks-eos-in-pretraining", "output-dir-is-the-model", "answers-not-trained",
    "run-losses-not-comparable", "template-marks-not-in-vocabulary", "own-rows-are-rare",
    "settings-name-missing-layers", "positions-scaled-in-training-only",
    "dataset-listed-twice-or-also-evaluated", "pad-set-to-stop-token", "dataset-not-in-dataset-info",
    "max-length-left-to-trl-default",
    "trained-adapter-not-used", "full-training-beyond-the-named-gpu", "rows-surely-cut",
    "evaluation-labelled-otherwise", "adapter-trains-the-router",
}  # fmt: skip
"""Their remedies name no value to write: the user decides which, or it stands in a part of the settings"""


def _followed(settings: dict[str, Any], finding: Finding, remedy: str) -> dict[str, Any] | None:
    """The settings after one alternative of a remedy; None where it names nothing."""
    done = dict(settings)
    for match in SET.finditer(remedy):
        key = match["key"] or match["other"] or match["more"]
        value = (
            match["value"] if match["value"].startswith("[") else match["value"].replace(",", "")
        )
        done = _with(done, key, yaml.safe_load(value))
    for match in LEAVE.finditer(remedy):
        done = {
            key: value for key, value in done.items() if key not in (match["key"], match["gone"])
        }
    for match in WRITE.finditer(remedy):
        done = _written(done, finding, match["new"], match["old"])
    return None if done == settings else done


def _with(settings: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A setting, where it stands already: `r` of a finding on `lora_r` is that."""
    known = [name for name in settings if name == key or name.endswith(f"_{key}")] or [key]
    return {**settings, known[0]: value}


def _written(
    settings: dict[str, Any], finding: Finding, new: str, old: str | None
) -> dict[str, Any]:
    if old is not None:
        return yaml.safe_load(re.sub(rf"\b{old}\b", new, yaml.safe_dump(settings)))
    key, _, value = finding.cases[0].text.partition(": ")
    if value:
        return {**settings, key: new}
    return {(new if name == key else name): item for name, item in settings.items()}


def _levels(path: Path) -> dict[str, int]:
    """Each rule that fires at all, and how badly."""
    found: dict[str, int] = {}
    for finding in judge_settings(read_config(path), RunSpec()).findings:
        found[finding.rule] = max(found.get(finding.rule, 0), RANK[finding.severity])
    return found


@pytest.mark.parametrize("rule", CONFIG, ids=lambda rule: rule.name())
def test_what_a_finding_on_settings_says_ends_it(rule: type[Rule[Any]], tmp_path: Path) -> None:
    example = yaml.safe_load(block(sections(rule)["Example"]))
    config = config_of(example, tmp_path)
    path = Path(config.path)
    before = _levels(path)
    settings = yaml.safe_load(path.read_text())
    finding = next(f for f in judge_settings(config, RunSpec()).findings if f.rule == rule.name())
    tried = 0
    for alternative in re.split(r", or |; before ", finding.remedy):
        if (done := _followed(settings, finding, alternative)) is None:
            continue
        tried += 1
        path.write_text(yaml.safe_dump(done, sort_keys=False))
        after = _levels(path)
        assert rule.name() not in after, alternative
        new = {
            name for name, level in after.items() if level > max(before.get(name, 0), RANK["info"])
        }
        assert not new, alternative
    assert (tried == 0) == (rule.name() in PROSE), finding.remedy
