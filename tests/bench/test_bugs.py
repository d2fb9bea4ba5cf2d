"""The bug bench: its cases are well formed, and those that are files are found, each by its own rule."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.bugs.case import Case, cases, inputs
from bench.bugs.healthy import listed
from bench.bugs.peers import peers
from bench.bugs.run import Said, judged, trial, truetune
from tests.parts.families import BY_NAME
from truetune.checks.rule_catalogue import all_rules
from truetune.cli import truetune_group

NAMES = {rule.name() for rule in all_rules()}
OPEN = frozenset(
    (
        "adapter-wrapped-again-in-the-run",
        "dpo-against-another-reference",
        "ids-only-with-completion-only-loss",
        "labels-shifted-in-the-rows",
        "metric-of-teacher-forcing",
        "pad-eos-with-trl",
        "rehearsal-of-swapped-sides",
        "spans-by-prefix-length",
        "trl-ids-only-with-completion-loss",
        "trl-lora-targets-of-another-architecture",
    )
)
"""Cases that the right rule does not find yet"""
STATIC = [case for case in cases() if case.static]
REWARDS_TRIED = ("reward-asks-the-list-for-a-text", "reward-contains-both-ways")
"""Of the reward functions, those that are tried in every test run: each trial calls a function some 50 times"""
READ = [
    case
    for case in STATIC
    if not case.runs and (case.stage != "reward" or case.name in REWARDS_TRIED)
]
TRIED = (
    "answers-hidden-by-the-attention-mask",
    "checkpointing-without-gradients",
    "formatting-function-not-called",
    "half-of-the-answers-lose-their-end",
    "kto-batch-holds-its-own-pair",
    "labels-shifted-in-the-collator",
    "packed-documents-see-each-other",
    "pads-in-the-labels",
    "reference-with-another-seed",
    "rehearsal-of-rows-without-stop",
    "rehearsal-of-shifted-labels",
    "rewards-by-the-answers-of-other-rows",
    "worse-of-two-answers-preferred",
)
"""Of the cases that are run, those that are tried in every test run; the bench tries all"""


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def said(case: Case, side: str, monkeypatch: pytest.MonkeyPatch) -> Said:
    """What truetune says of a twin; without a process of its own, which takes longer."""
    twins = inputs(case, None)
    monkeypatch.chdir(getattr(twins, side))
    arguments = [*twins.arguments(case, side), "--format", "json", "--quiet"]
    result = CliRunner().invoke(truetune_group, arguments, catch_exceptions=False)
    return Said(tuple(json.loads(result.stdout)["findings"]), 0.0)


def test_there_are_cases_enough() -> None:
    assert len(cases()) >= 90


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_says_what_it_is(case: Case) -> None:
    assert case.fault.endswith(".")
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in case.threads)
    assert set(case.families) <= set(BY_NAME)
    assert set(case.rules) | set(case.besides) <= NAMES or case.name in OPEN
    assert case.static != (case.folder / "make.py").is_file()
    assert ("{tokenizer}" in case.command or "/tokenizer" in case.command) == bool(case.families)


@pytest.mark.parametrize("case", STATIC, ids=lambda case: case.name)
def test_twins_are_alike(case: Case) -> None:
    broken, clean, _ = inputs(case, None)
    ours, theirs = files(broken), files(clean)
    assert ours != theirs
    assert sum(ours.get(name) != theirs.get(name) for name in ours.keys() | theirs.keys()) == 1


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_the_fault_is_found_and_the_twin_is_clean(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = judged(case, None, said(case, "broken", monkeypatch), said(case, "clean", monkeypatch))
    assert result.alarms == ()
    if case.name in OPEN:
        assert result.verdict != "found", "found by now: take it out of OPEN"
    else:
        assert result.verdict == "found", result


def test_runs_are_audited_and_rehearsed() -> None:
    """In one warm process: a test each would have each worker start one."""
    for case in cases():
        if case.name in TRIED:
            result = trial(case, None)
            assert (result.verdict, result.alarms) == ("found", ()), result


def test_a_run_through_the_command() -> None:
    """The broken twin alone: each takes a process that loads torch, and the warm one has judged both."""
    (case,) = (case for case in cases() if case.name == "pads-in-the-labels")
    twins = inputs(case, None)
    told = truetune(twins.arguments(case, "broken"), twins.broken)
    assert (told.error, told.rules(case.severity) & set(case.rules)) == ("", set(case.rules))


def test_peers_are_pinned() -> None:
    known = {case.name for case in cases()}
    for name, told in peers().items():
        assert re.fullmatch(r"\d+(\.\d+)+", told["version"]), name
        claimed = {case for run in told.get("runs", ()) for case in run["cases"] if "*" not in case}
        assert claimed <= known, name


def test_judgements_give_a_reason() -> None:
    for entry in listed()["judged"]:
        assert entry["because"].endswith(".")
        assert entry["rule"] in NAMES
        assert isinstance(entry["right"], bool)
