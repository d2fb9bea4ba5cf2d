"""Faults: each rule finds one, users can name them wherever they name rules, and there are few enough to know."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from truetune.checks.explaining.guides import GUIDES
from truetune.checks.faults import Fault, fault_by_name
from truetune.checks.findings_file import append_findings, parse_finding_without_cases
from truetune.checks.former_rule_codes import FORMER_NAMES
from truetune.checks.lint import lint
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import (
    STATIONS,
    all_rules,
    find_fault,
    find_rule,
    group_rules_by_fault,
    select_rules,
)
from truetune.checks.rule_families import STABILITIES, is_rule_code
from truetune.cli import truetune_group
from truetune.errors import UsageError
from truetune.report.explain_messages_and_guides_terminal import find_message_or_guide

# The goal is about 200: more could not be known.
MAX_FAULTS = 210
# A fault with more rules is two faults, or a basket for what fits nowhere.
MAX_RULES = 14
SCRIPT = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, Trainer

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("base"), "adapter")
Trainer(model=model, train_dataset=rows).train()
"""
"""A script with one finding, of adapter-loaded-frozen"""


def run_truetune(*arguments: str) -> Result:
    return CliRunner().invoke(truetune_group, arguments, standalone_mode=False)


def test_each_rule_of_this_package_finds_a_fault() -> None:
    lacking = [f"{rule.code} {rule.name()}" for rule in all_rules() if rule.fault is None]
    assert lacking == [], "give each a `fault = Fault.NAME` below its code (checks/faults.py)"


def test_each_fault_has_rules() -> None:
    found = {rule.fault for rule in all_rules()}
    assert [fault.kebab_name for fault in Fault if fault not in found] == []
    many = {
        fault.name: len(fault.rules)
        for fault in group_rules_by_fault(all_rules())
        if len(fault.rules) > MAX_RULES
    }
    assert many == {}


def test_there_are_few_enough_to_know() -> None:
    assert len(Fault) <= MAX_FAULTS


def test_names_of_faults_mean_nothing_else() -> None:
    names = {fault.kebab_name for fault in Fault}
    assert len(names) == len(Fault)
    assert names.isdisjoint(rule.name() for rule in all_rules())
    assert names.isdisjoint(FORMER_NAMES)
    assert names.isdisjoint((*STATIONS, *STABILITIES))
    assert names.isdisjoint(guide.name for guide in GUIDES)
    for name in names:
        # With a hyphen, so that `explain` takes it for a name and not for a word to be searched.
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name), name
        assert not is_rule_code(name)
        assert find_message_or_guide(name) is None, name


def test_titles_are_sentences_unlike_those_of_rules() -> None:
    titles = {rule.title() for rule in all_rules()}
    for fault in Fault:
        assert fault.title[0].isupper() or fault.title.startswith("device_map"), fault
        assert fault.title.endswith("."), fault
        assert fault.title not in titles, fault
        assert len(fault.title) <= 90, fault


def test_a_rule_has_the_fault_that_its_class_names() -> None:
    rule = find_rule("pad-is-stop-token")
    assert rule.fault is Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    assert rule.fault_name() == "stop-token-left-out-of-loss"
    assert rule.fault_title() == "A stop token follows the answers, but the loss leaves it out."


def test_a_rule_without_a_fault_is_a_fault_of_its_own() -> None:
    class OfPlugin(Rule[object]):
        code = "NANO001"

    (group,) = group_rules_by_fault((OfPlugin,))
    assert (group.name, group.title) == (OfPlugin.name(), OfPlugin.title())
    assert group.rules == (OfPlugin,)


def test_a_fault_selects_and_ignores_its_rules_at_all_stations() -> None:
    chosen = select_rules(("stop-token-left-out-of-loss",), ())
    assert {rule.fault for rule in chosen} == {Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS}
    assert {rule.family for rule in chosen} >= {"rows", "config", "source", "batch"}
    assert set(select_rules((), ("stop-token-left-out-of-loss",))) == set(all_rules()) - set(chosen)
    of_config = select_rules(("Stop-Token-Left-Out-Of-Loss",), (), "config")
    assert of_config == [rule for rule in chosen if rule.family == "config"]


def test_a_fault_that_is_nearly_right() -> None:
    with pytest.raises(UsageError, match="did you mean 'prompts-in-loss'"):
        select_rules(("prompts-in-lose",), ())


def test_a_fault_is_no_rule() -> None:
    with pytest.raises(UsageError, match="truetune rules prompts-in-loss"):
        find_rule("prompts-in-loss")
    assert find_fault("prompts-supervised") is None
    assert fault_by_name("PROMPTS-IN-LOSS") is Fault.PROMPTS_IN_LOSS


def test_settings_comments_and_findings_name_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    (finding,) = lint([path]).findings
    assert (finding.rule, finding.fault) == ("adapter-loaded-frozen", "no-weight-trained")
    assert lint([path], ignore=("no-weight-trained",)).findings == ()
    assert lint([path], select=("no-weight-trained",)).findings == (finding,)
    assert lint([path], select=("prompts-in-loss",)).findings == ()
    comment = "  # truetune: ignore[no-weight-trained]\n"
    path.write_text(SCRIPT.replace("\n", comment), encoding="utf-8")
    assert lint([path]).findings == ()


def test_options_name_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    for command in ("check", "lint"):
        shown = run_truetune(command, str(path), "--select", "no-weight-trained", "--json")
        (finding,) = json.loads(shown.stdout)["findings"]
        assert finding["fault"] == "no-weight-trained"
        ignored = run_truetune(command, str(path), "--ignore", "no-weight-trained", "--json")
        assert json.loads(ignored.stdout)["findings"] == []


def test_a_stored_finding_keeps_its_fault(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    (finding,) = lint([path]).findings
    append_findings((finding,), 3, tmp_path)
    record = json.loads((tmp_path / "findings.jsonl").read_text(encoding="utf-8"))
    assert parse_finding_without_cases(record).fault == "no-weight-trained"
    # A file that a release without faults has written is still read.
    del record["fault"]
    assert parse_finding_without_cases(record).fault == ""


def test_rules_are_listed_below_their_faults() -> None:
    heading, *lines = run_truetune("rules", "prompts-in-loss").stdout.splitlines()
    rules = select_rules(("prompts-in-loss",), ())
    assert heading == f"prompts-in-loss ({len(rules)} rules): Prompts are in the loss."
    assert [line.split()[:2] for line in lines] == [[rule.code, rule.name()] for rule in rules]
    part = run_truetune("rules", "BAT003").stdout.splitlines()[0]
    assert part == f"prompts-in-loss (1 of {len(rules)} rules): Prompts are in the loss."
    listed = json.loads(run_truetune("rules", "BAT003", "--json").stdout)["rules"]
    assert [rule["fault"] for rule in listed] == ["prompts-in-loss"]


def test_faults_are_listed_alone() -> None:
    lines = run_truetune("rules", "--faults").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [fault.kebab_name for fault in Fault]
    assert all(line.endswith(fault.title) for line, fault in zip(lines, Fault, strict=True))
    (one,) = run_truetune("rules", "--faults", "BAT003").stdout.splitlines()
    assert one.startswith("prompts-in-loss  1 of ")
    value = json.loads(run_truetune("rules", "--faults", "--json").stdout)
    assert value["schema"] == "truetune.faults/1"
    assert sum(len(fault["rules"]) for fault in value["faults"]) == len(all_rules())


def test_a_fault_is_explained_by_its_rules() -> None:
    shown = run_truetune("explain", "prompts-in-loss").stdout
    assert "Prompts are in the loss." in shown
    rules = select_rules(("prompts-in-loss",), ())
    for rule in rules:
        (line,) = (line for line in shown.splitlines() if line.startswith(rule.code))
        assert line.endswith(rule.title())
    value = json.loads(run_truetune("explain", "prompts-in-loss", "--json").stdout)
    assert (value["schema"], value["fault"]) == ("truetune.fault/1", "prompts-in-loss")
    assert value["rules"] == [rule.name() for rule in rules]


def test_help_says_that_faults_can_be_named() -> None:
    assert "--faults" in run_truetune("rules", "--help").stdout
    assert "FAULT" in run_truetune("explain", "--help").stdout
    assert "fault" in run_truetune("check", "--help").stdout
