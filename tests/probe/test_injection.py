"""A hook that fails in any of its functions, in any way, changes nothing of the run: a sample of the injector's table.

The whole table (`tests/probe/injection/table.md`) is written by `python -m tests.probe.injection --write`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.probe.injection.functions import Function, functions
from tests.probe.injection.table import ROLLOUTS, Injector, injector, kind_for, laws_for

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks"),
    pytest.mark.xdist_group("injection"),
]
CONTAINED = [function for function in functions() if not function.is_boundary]
LAWS = ("truetune.probe.laws", "truetune.probe.measuring")
OWN = [f for f in CONTAINED if not f.module.startswith(LAWS)]
SAMPLE = [
    *[(f, "raise") for f in OWN if f.module == "truetune.probe.trainer_hook"],
    *[(f, ("exit", "interrupt", "weird", "none")[n % 4]) for n, f in enumerate(OWN[::24])],
    *[(f, "raise") for f in CONTAINED[::50]],
    *[
        (f, "hang")
        for f in OWN
        if f.name in ("Hook.find", "observe_run", "OwnLoop._note", "observe_loop")
    ],
    *[(f, "raise") for f in OWN if f.module == "truetune.probe.own_loop_hook"],
    *[(f, "raise") for f in OWN if f.module == "truetune.probe.rollout_hook"],
    *[
        (f, "weird")
        for f in OWN
        if f.name in ("RolloutRecorder._noting", "RolloutRecorder._listening")
    ],
    *[
        (f, ("raise", "exit", "weird", "none")[n % 4])
        for n, f in enumerate(f for f in OWN if f.module == ROLLOUTS[0])
        if n % 3 == 0
    ],
    *[
        (f, "hang")
        for f in OWN
        if f.name in ("RolloutRecorder._note_loss", "RolloutWatch.hand_over")
    ],
]
KINDS = ("dataclass", "__eq__", "__bool__", "property", "slots", "new", "past", "metaclass")


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    with injector(tmp_path_factory.mktemp("injection")) as made:
        yield made


def test_a_healthy_hook_judges_and_changes_nothing(subjects: Injector) -> None:
    for in_place, kind in product((False, True), ("plain", "own loop", "rollouts")):
        outcome = subjects.inject(
            None, "none", ("loss-alive", "padding-invariance"), in_place=in_place, kind=kind
        )
        assert (outcome.seen, outcome.told, outcome.judged) == (subjects.alone[kind], (), True)


@pytest.mark.parametrize(
    ("function", "fault"), SAMPLE, ids=lambda item: item if isinstance(item, str) else item.name
)
def test_a_fault_changes_nothing(function: Function, fault: str, subjects: Injector) -> None:
    kind = kind_for(function)
    outcome = subjects.inject(function, fault, laws_for(function), kind=kind)
    assert outcome.seen == subjects.alone[kind]
    assert len(outcome.told) <= 1


def test_a_fault_in_the_process_itself_changes_nothing(subjects: Injector) -> None:
    """Where a device is in use the audit can't be made in a copy."""
    for fault in ("raise", "hang"):
        outcome = subjects.inject(
            next(f for f in OWN if f.name == "trial_of"), fault, ("loss-alive",), in_place=True
        )
        assert (outcome.seen, outcome.reached, len(outcome.told)) == (
            subjects.alone["plain"],
            True,
            1,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_trainers_of_odd_classes_are_judged(kind: str, subjects: Injector) -> None:
    """Such as can't be hashed, compared, or asked whether they are true."""
    outcome = subjects.inject(None, "none", ("loss-targets",), kind=kind)
    assert outcome.same, outcome.seen
    assert (outcome.told, outcome.judged) == ((), True)


def test_the_table_is_of_these_functions() -> None:
    """Of the hook's own modules: the table is to be written again where they change."""
    table = Path(__file__).parent.joinpath("injection", "table.md").read_text()
    modules = (
        "truetune.probe.trainer_hook",
        "truetune.probe.audit_session",
        "truetune.probe.forked_process",
        "truetune.probe.find_trainers_and_their_datasets",
    )
    missing = [
        f"{f.module}.{f.name}"
        for f in functions()
        if f.module in modules and f"{f.module}.{f.name} |" not in table
    ]
    assert not missing
    assert "| **DIFFERS** |" not in table.partition("## The entry points")[0]
