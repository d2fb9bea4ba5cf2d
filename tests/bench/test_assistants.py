"""The scripted assistant reaches the fault of a project, and knows nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.assistants.projects import BrokenProject, draw_projects
from bench.assistants.scripted_assistant import MAX_CALLS, CallLog, OutOfCalls, repair_project
from bench.bugs.case import Case

PROJECTS = draw_projects()
CHOSEN = ("padding-supervised", "loss-not-divided-by-accumulation", "twenty-second-a-g1-swahili")


def test_twenty_are_drawn_of_both_kinds() -> None:
    assert len({project.name for project in PROJECTS}) == 20
    assert sum(isinstance(project.source, Case) for project in PROJECTS) == 10
    assert all(isinstance(project.source, Case) or project.symptom for project in PROJECTS)


@pytest.mark.parametrize(
    "project",
    [project for project in PROJECTS if project.name in CHOSEN],
    ids=lambda project: project.name,
)
def test_the_fault_is_reached(project: BrokenProject) -> None:
    outcome = repair_project(project)
    assert outcome.named_at_call == 1
    assert outcome.is_first_finding
    assert len(outcome.calls) <= MAX_CALLS
    assert outcome.fixed_by_tool == (project.name == "padding-supervised")


def test_it_stops_after_five_calls() -> None:
    log = CallLog()
    for _ in range(MAX_CALLS):
        log.record("explain", lambda: None)
    with pytest.raises(OutOfCalls):
        log.record("explain", lambda: None)


def test_the_cases_of_the_bench_stay_as_they_are(tmp_path: Path) -> None:
    """It edits a copy: an edit in the bench would make the next run find nothing."""
    (project,) = (one for one in PROJECTS if one.name == "padding-supervised")
    assert isinstance(project.source, Case)
    script = project.source.folder / "broken" / "train.py"
    copied = project.lay_out(tmp_path) / "train.py"
    assert copied.read_bytes() == script.read_bytes()
    assert not copied.samefile(script)
