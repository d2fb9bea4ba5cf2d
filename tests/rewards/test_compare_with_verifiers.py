"""A reward function beside math-verify: what is counted, who is right, and verifiers that fail.

Most tests have a stand-in for math-verify: a real module of its name and functions, on the path of this process and of
the one that asks it. It fails as one wishes, and shows what is done where math-verify is not installed. The last test
has math-verify itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli import truetune_group
from truetune.generation.verifier_comparison import (
    ComparedCompletion,
    ComparedKind,
    KindComparison,
    compare_verdicts,
)
from truetune.rewards import compare_with_verifiers
from truetune.rewards.compare_with_verifiers import compare_with_verifier, is_mathematics
from truetune.rewards.rows_for_rewards import right_answer_of
from truetune.rewards.verifiers import MATH_VERIFY, VERIFIERS, Verifier

STAND_IN = """\
import re

def parse(text):
    return re.findall(r"[0-9]+", text)[-1:]

def verify(gold, target):
    return gold == target
"""
"""Takes the last number for the answer, without the limits that newer versions of math-verify have"""
EXACT = (
    "def correct(completions, answer, **kwargs):\n"
    "    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]\n"
)
BOXED = (
    "import re\n"
    "def correct(completions, answer, **kwargs):\n"
    "    found = [re.findall(r'boxed[{](.*)[}]', text) for text in completions]\n"
    "    return [float(one[-1:] == [gold.strip('$')]) for one, gold in zip(found, answer)]\n"
)


def completion(
    kind: ComparedKind, text: str, *, is_paid: bool = False, row: int = 1, reference: str = "12"
) -> ComparedCompletion:
    return ComparedCompletion(kind, kind, row, reference, text, float(is_paid), is_paid)


def put_on_path(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `math_verify` be a module of this text, in this process and in those that it starts."""
    (folder / "site").mkdir()
    (folder / "site" / "math_verify.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"), prepend=":")


def run(folder: Path, *options: str) -> str:
    """What the command prints on the functions and rows of a folder."""
    arguments = [
        "reward",
        f"{folder / 'rewards.py'}:correct",
        "--data",
        str(folder / "rows.jsonl"),
    ]
    runner = CliRunner(env={"COLUMNS": "120"})
    done = runner.invoke(truetune_group, [*arguments, *options], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.output


def write_inputs(folder: Path, function: str, *answers: str) -> None:
    """A file with the function and one with a row for each answer."""
    (folder / "rewards.py").write_text(function)
    rows = [json.dumps({"prompt": "How much?", "answer": answer}) for answer in answers]
    (folder / "rows.jsonl").write_text("\n".join(rows))


def test_what_one_side_alone_pays_is_counted_by_kind() -> None:
    completions = [
        completion("right", "<a>12</a>", is_paid=True),
        completion("right", "12", is_paid=True),
        completion("spelling", "12.0"),
        completion("empty", "", is_paid=True),
        completion("wrong", "13", is_paid=True),
        completion("wrong", "14"),
    ]
    seen = compare_verdicts("math-verify", "0", completions, [False, True, True, False, None])
    assert seen.kinds == (
        KindComparison("right", 2, 1, 0),
        KindComparison("spelling", 1, 0, 1),
        KindComparison("empty", 1, 1, 0),
    )
    assert (seen.compared, seen.agreed, seen.without_verdict, seen.not_compared) == (4, 1, 1, 1)
    # Of three differences the function is right on the right answer that it pays.
    assert seen.function_is_right == 1
    assert seen.first_of_function_alone == completions[3]
    assert seen.first_of_verifier_alone == completions[2]


@pytest.mark.parametrize(
    ("reference", "is_compared"),
    [
        ("12", True),
        ("-8.5", True),
        ("1,230", True),
        ("She has 5 + 7 = 12. #### 12", True),
        ("3/4", True),
        ("$\\frac{1}{2}$", True),
        ("x^2", True),
        ("2\\pi", True),
        ("Paris", False),
        ("B", False),
        ("12/05/2024", False),
        ("the first_name of a person", False),
        ('{"sum": 12}', False),
    ],
)
def test_numbers_and_formulas_are_compared(reference: str, *, is_compared: bool) -> None:
    answer = right_answer_of(reference)
    assert answer is not None
    assert is_mathematics(answer) is is_compared


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise RuntimeError('broken build')", "RuntimeError: broken build"),
        ("parse = print", "ImportError: cannot import name 'verify'"),
        (f"{STAND_IN}    import os; os._exit(3)".replace("return gold == target", "pass"),
         "the process ended with code 3"),
        (STAND_IN.replace("return gold == target", "while True: pass"), "a call took longer than 1 s"),
        (STAND_IN.replace("return gold == target", "raise BaseException"), "it gave no verdict on any"),
        (STAND_IN.replace("text)[-1:]", "text)[:0]"), "it gave no verdict on any"),
    ],
)  # fmt: skip
def test_a_verifier_that_fails_is_told_as_the_reason(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, source, monkeypatch)
    monkeypatch.setattr(compare_with_verifiers, "ROW_SECONDS", 1.0)
    seen = compare_with_verifier(
        MATH_VERIFY, [completion("right", "12", is_paid=True)], python_only=False
    )
    assert seen.compared == 0
    assert problem in seen.problem


def test_a_slow_verifier_is_compared_on_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, STAND_IN, monkeypatch)
    # The start, and before each of two rows.
    moments = iter((0.0, 1.0, 31.0))
    monkeypatch.setattr(compare_with_verifiers, "_now", lambda: next(moments))
    completions = [completion("wrong", "13", row=2), completion("right", "12", is_paid=True)]
    seen = compare_with_verifier(MATH_VERIFY, completions, python_only=False)
    assert (seen.compared, seen.agreed, seen.not_compared) == (1, 1, 1)
    assert seen.problem == "it took longer than 30 s"


def test_a_row_that_the_verifier_hangs_on_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = STAND_IN.replace("return gold == target", "while gold == ['7']: pass\n    return False")
    put_on_path(tmp_path, hangs, monkeypatch)
    monkeypatch.setattr(compare_with_verifiers, "ROW_SECONDS", 0.5)
    completions = [
        completion("right", "7", is_paid=True, reference="7"),
        completion("wrong", "13", row=2),
        completion("right", "12", is_paid=True, row=3),
    ]
    seen = compare_with_verifier(MATH_VERIFY, completions, python_only=False)
    assert (seen.compared, seen.agreed, seen.without_verdict) == (2, 1, 1)
    assert seen.problem == ""


def test_a_package_that_is_not_installed_is_no_verifier() -> None:
    absent = Verifier("no-such", "no_such_verifier_of_mathematics", MATH_VERIFY.target)
    assert (absent.is_installed, absent.version) == (False, "")
    assert VERIFIERS == (MATH_VERIFY,)


def test_the_report_shows_where_both_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, STAND_IN, monkeypatch)
    write_inputs(tmp_path, EXACT, "12", "1230")
    said = " ".join(run(tmp_path, "-v").split())
    assert "agrees with math-verify" in said
    # The last number of `12.0`, `1,230` and `1{,}230` is another one, so that both refuse these.
    assert "right answers in other spellings 0 of 18 14 of 18" in said
    # The stand-in reads no sign.
    assert "another sign, spaces between digits 0 of 3 2 of 3" in said
    assert "of 16 differences the function is right in 2 and math-verify in 14" in said
    assert "math-verify alone pays: row 1, X.: '12.' gets 0, where '12' is right" in said
    assert "made to be right, so math-verify is right" in said
    assert "the function alone pays" not in said
    assert "math-verify takes 14 of 18 completions with such spellings for right" in said


def test_words_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, STAND_IN, monkeypatch)
    write_inputs(tmp_path, EXACT, "Paris", "oxygen")
    assert json.loads(run(tmp_path, "--json"))["reward"]["comparisons"] == []


def test_math_verify_itself(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    write_inputs(tmp_path, BOXED, "12", "$\\frac{1}{2}$", "1230")
    report = json.loads(run(tmp_path, "--json"))
    (seen,) = report["reward"]["comparisons"]
    assert (seen["verifier"], seen["problem"], seen["without_verdict"]) == ("math-verify", "", 0)
    assert f"agrees with math-verify {seen['version']} on" in report["verdict"]
    by_kind = {one.pop("kind"): one for one in seen["kinds"]}
    for kind in ("right", "empty", "wrong", "part", "thoughts"):
        assert (by_kind[kind]["function_alone"], by_kind[kind]["verifier_alone"]) == (0, 0), kind
        assert by_kind[kind]["compared"] > 0
    assert by_kind["spelling"]["function_alone"] == 0
    refused = [one["completion"] for one in seen["differences"] if not one["is_paid"]]
    assert "\\boxed{12.0}" in refused
    assert "\\boxed{1,230}" in refused
