"""The comparison with the stacks' own checks: page and judgements fit the results, and some rows are run again."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from bench.stacks.declared import stacks
from bench.stacks.judgements import (
    is_comparable,
    judgements,
    line_that_names_the_bug,
    names_the_bug,
)
from bench.stacks.message_difference import messages_only_of
from bench.stacks.page import (
    PAGE,
    README,
    read_results,
    read_truetune_result,
    with_tables,
)
from bench.stacks.run_cases import run_stack

RESULTS = tuple(chain.from_iterable(read_results(name) for name in stacks()))
RUN_AGAIN = (
    "adapter-of-scale-zero",
    "column-mapped-to-the-answer",
    "text-column-ends-twice",
)
"""One that TRL's log shows, and two of which TRL says nothing"""


@pytest.mark.parametrize("path", [PAGE, README], ids=lambda path: path.name)
def test_the_page_is_written_from_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `python -m bench.stacks --page`"


def test_the_page_names_the_bugs_that_only_a_stack_names() -> None:
    only_by_a_stack = {
        result.case
        for result in RESULTS
        if is_comparable(result)
        and names_the_bug(result)
        and read_truetune_result(result.case)["verdict"] != "found"
    }
    before_the_method, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## ")
    assert set(re.findall(r"\(`([\w-]+)`\)", before_the_method)) == only_by_a_stack


def test_every_stack_was_run() -> None:
    assert all(read_results(name) for name in stacks())
    assert len(read_results("trl")) >= 20


@pytest.mark.parametrize("name", sorted(stacks()))
def test_every_result_is_of_a_declared_case(name: str) -> None:
    declared = {case.name for case, _ in stacks()[name].fitting()}
    assert {result.case for result in read_results(name)} <= declared


def test_the_page_says_how_many_cases_came_after_the_runs() -> None:
    """A run takes hours and the stacks' own environments, and the bench gets cases in between."""
    later = {
        name: len(stack.fitting()) - len(read_results(name))
        for name, stack in stacks().items()
        if not stack.sample
    }
    counts = ", ".join(f"{count} of {name}" for name, count in later.items() if count)
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"Cases that came after these runs are not in the table: {counts}." in page


def test_all_that_was_printed_is_judged() -> None:
    printed = {(result.stack, result.case): result for result in RESULTS if result.messages}
    for key, result in printed.items():
        assert result.clean_exit_code or key in judgements(), key
    assert judgements().keys() <= printed.keys()
    for key, judgement in judgements().items():
        assert judgement.because.endswith(".")
        if names_the_bug(printed[key]):
            assert judgement.line
            assert line_that_names_the_bug(printed[key])


@pytest.mark.slow
def test_some_rows_are_as_the_page_says() -> None:
    pytest.importorskip("trl")
    kept = {result.case: result for result in read_results("trl")}
    again = list(run_stack(stacks()["trl"], RUN_AGAIN))
    assert [result.case for result in again] == list(RUN_AGAIN)
    for result in again:
        assert (result.broken_exit_code, result.clean_exit_code) == (0, 0)
        assert bool(result.messages) == bool(kept[result.case].messages)
    assert "'grad_norm': '0'" in again[0].messages[0]


@pytest.mark.parametrize(
    ("broken", "clean", "messages"),
    [
        ("loss 1.5\nWARNING: no stop token", "loss 2.5", ("WARNING: no stop token",)),
        ("UserWarning: 3 rows", "UserWarning: 4 rows", ()),
        ("{'loss': '1.5', 'epoch': '1'}", "", ()),
        ("{'loss': '0', 'epoch': '1'}", "", ("{'loss': '0', 'epoch': '1'}",)),
        ('"fp16": true,\nDone', "Done", ()),
        ("a(-100, 5) b(-100, 6) c(7, 7)", "", ()),
        ("\x1b[31mError: x\x1b[0m", "", ("Error: x",)),
        ("Map:  50%|##  | 1/2\rMap: done", "", ("Map: done",)),
        (
            'Traceback (most recent call last):\n  File "a.py"\n    f()\nValueError: bad',
            "",
            ("ValueError: bad",),
        ),
    ],
)
def test_lines_of_the_broken_copy_alone(broken: str, clean: str, messages: tuple[str, ...]) -> None:
    assert messages_only_of(broken, clean) == messages
