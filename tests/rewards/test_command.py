"""`truetune reward` from the command line: verdicts, exit codes, and input that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

import truetune
from truetune.cli import truetune_group

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)
EXACT = (
    "def correct(completions, answer, **kwargs):\n"
    "    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]\n"
)
ROWS = '{"prompt": "5 + 7?", "answer": "12"}\n{"prompt": "30 * 41?", "answer": "1230"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a function and rows, which is the working folder."""
    (tmp_path / "rewards.py").write_text(EXACT)
    (tmp_path / "rows.jsonl").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    # test_compare_with_verifiers.py is about these; a second for each of the runs here.
    monkeypatch.setattr("truetune.rewards.verifiers.VERIFIERS", ())
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(truetune_group, ["reward", *arguments], standalone_mode=False)


def code_of(result: Result) -> int:
    assert result.exception is None, result.exception
    return int(result.return_value)


def error_of(*arguments: str) -> str:
    """The message of an input that can't be read."""
    result = run(*arguments)
    assert isinstance(result.exception, truetune.errors.TruetuneError), result.output
    return str(result.exception)


def test_a_sound_function(folder: Path) -> None:
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    assert code_of(done) == 0
    assert "no findings" in done.output
    assert "instead of the right answer" in done.output


def test_json_by_the_schema(folder: Path) -> None:
    (folder / "rewards.py").write_text(EXACT.replace("text == gold", "gold in text"))
    done = run("rewards.py:correct", "--data", "rows.jsonl", "--json")
    report = json.loads(done.output)
    jsonschema.validate(report, SCHEMA)
    assert code_of(done) == 1
    assert report["outcome"] == "findings"
    assert report["findings"][0]["rule"] == "reward-pays-parts-of-the-answer"
    assert report["reward"]["best_form"] == "X"
    assert "it also pays for parts of the answer" in report["verdict"]


def test_the_python_api_gives_the_same(folder: Path) -> None:
    report = truetune.reward("rewards.py:correct", "rows.jsonl", rows=1)
    assert (report.exit_code(), report.trial.rows) == (0, 1)
    assert report.trial.reference_column == "answer"


def test_a_module_of_the_working_folder(folder: Path) -> None:
    package = folder / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "functions.py").write_text(EXACT)
    assert code_of(run("mine.functions:correct", "--data", "rows.jsonl")) == 0


def test_a_training_script_is_not_executed(folder: Path) -> None:
    (folder / "train.py").write_text(
        "from pathlib import Path\nMARK = 'never'\n"
        + EXACT
        + "trainer = object()\nPath('trained').touch()\ntrainer.train()\n"
    )
    done = run("train.py:correct", "--data", "rows.jsonl")
    assert code_of(done) == 0
    assert not (folder / "trained").exists()
    assert "calls train where it is imported" in done.output


def test_nothing_is_written_outside(folder: Path) -> None:
    (folder / "rewards.py").write_text(
        EXACT.replace("    return", "    open('samples.txt', 'a').write('x')\n    return")
    )
    before = sorted(path.name for path in folder.iterdir())
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    assert code_of(done) == 0
    assert "reward-touches-files-or-processes" in done.output
    assert sorted(path.name for path in folder.iterdir()) == before


def test_completions_are_messages_where_the_prompts_are(folder: Path) -> None:
    (folder / "chats.jsonl").write_text(
        '{"prompt": [{"role": "user", "content": "5 + 7?"}], "answer": "12"}\n'
    )
    (folder / "rewards.py").write_text(EXACT.replace("text ==", "text[0]['content'] =="))
    report = truetune.reward("rewards.py:correct", "chats.jsonl")
    assert (report.trial.completions_as, report.exit_code()) == ("messages", 0)
    # Rows that a script makes chats of are texts in their file: the function says what it takes.
    assert truetune.reward("rewards.py:correct", "rows.jsonl").trial.completions_as == "messages"


GRADED = """
def correct(completions, answer, **kwargs):
    scores = []
    for text, gold in zip(completions, answer):
        read = text.strip().isdigit()
        scores.append({skipped} if gold in {left} else 1.0 if text == gold else {other} if read else {unread})
    return scores
"""


@pytest.mark.parametrize(
    ("left", "other", "unread", "wrong", "paid"),
    [
        # What another answer gets is said, and not what a text gets that can't be read.
        ((), -0.5, -1.0, "-1 to -0.5", "2 of 2 rows"),
        ((), 0.1, 0.0, "0 to 0.1", "2 of 2 rows"),
        ((), 0.0, 0.0, "0", "2 of 2 rows"),
        ((), -1.0, -0.5, "-1", "2 of 2 rows"),
        # Rows that are left to other functions are counted as such.
        (("12",), 0.0, 0.0, "0", "1 of 2 rows, 1 gets None"),
        (("12",), -0.5, -1.0, "-1 to -0.5", "1 of 2 rows, 1 gets None"),
    ],
)
def test_the_table_of_forms(
    folder: Path, left: tuple[str, ...], other: float, unread: float, wrong: str, paid: str
) -> None:
    source = GRADED.format(skipped=None, left=left, other=other, unread=unread)
    (folder / "rewards.py").write_text(source)
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    line = next(line for line in done.output.splitlines() if line.startswith("X  "))
    assert line.split() == ["X", "1", *wrong.split(), *paid.split()]


def test_refused_rows_are_not_left_rows(folder: Path) -> None:
    """A row that gets 0 is one that the function judges."""
    (folder / "rewards.py").write_text(
        GRADED.format(skipped=0.0, left=("12",), other=0.0, unread=0.0)
    )
    report: Any = truetune.reward("rewards.py:correct", "rows.jsonl")
    (plain,) = [form for form in report.trial.forms if form.name == "X"]
    assert (plain.paid, plain.rows, plain.skipped) == (1, 2, 0)


def test_which_column_is_not_known(folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"prompt": "?", "tests": ["a"], "level": 3}\n')
    (folder / "rewards.py").write_text(
        "def correct(completions, tests, level, **kwargs):\n    return [0.0 for _ in completions]\n"
    )
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    assert code_of(done) == 3
    assert "--reference COLUMN" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("rewards.py", "--data", "rows.jsonl"), "expected FILE.py:FUNCTION"),
        (("missing.py:f", "--data", "rows.jsonl"), "missing.py: there is no such file"),
        (("notes.ipynb:f", "--data", "rows.jsonl"), "expected a Python file"),
        (("rewards.py:other", "--data", "rows.jsonl"), "has no other; functions in it that take completions: correct"),
        (("rewards.py:correct", "--data", "missing.jsonl"), "missing.jsonl"),
        (("rewards.py:correct", "--data", "rows.jsonl", "--reference", "gold"), "no such column; they have answer"),
        (("rewards.py:correct", "--data", "rows.jsonl", "--golden", "gold"), "--golden gold: no row has a text"),
        (("rewards.py:correct", "--data", "rows.jsonl", "--answer-form", "x"), "expected one {}"),
    ],
)  # fmt: skip
def test_input_that_is_wrong(folder: Path, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in error_of(*arguments)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import no_such_package\n", "importing it raises ModuleNotFoundError"),
        ("def correct(:\n", "importing it raises SyntaxError"),
        ("raise SystemExit(4)\n", "importing it raises SystemExit: 4"),
        ("correct = 3\n", "correct is a int and no function"),
        ("def correct(scores):\n    return scores\n", "it takes scores and no completions"),
        (
            "def correct(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n",
            "takes data_source, ground_truth, and the rows have no such column",
        ),
        ("def correct(text, gold):\n    return sorted(text, key=lambda one: one)\n", "called as TRL calls them"),
        (
            "def correct(samples):\n    def score(one):\n        return 1.0\n    return list(map(score, samples))\n",
            "called as TRL calls them",
        ),
        (
            "def correct(weight):\n    def own(completions, **kwargs):\n        return [weight]\n    return own\n",
            "name the one that it gives",
        ),
        ("def correct(weight):\n    return lambda completions, **kwargs: [weight]\n", "name the one that it gives"),
        ("def correct(completions, gold, **kwargs):\n    return []\n", "takes gold, and the rows have no such column"),
    ],
)  # fmt: skip
def test_files_that_hold_no_such_function(folder: Path, source: str, expected: str) -> None:
    (folder / "rewards.py").write_text(source)
    assert expected in error_of("rewards.py:correct", "--data", "rows.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe broken", b"[1, 2]\n"])
def test_rows_that_are_none(folder: Path, content: bytes) -> None:
    (folder / "rows.jsonl").write_bytes(content)
    assert "rows.jsonl" in error_of("rewards.py:correct", "--data", "rows.jsonl")


def test_a_broken_line_costs_no_other_row(folder: Path) -> None:
    (folder / "rows.jsonl").write_bytes(b'{"prompt": "\xff"}\n' + ROWS.encode())
    report: Any = truetune.reward("rewards.py:correct", "rows.jsonl")
    assert report.trial.rows == 2
    (told,) = [one for one in report.not_judged if one.what == "rows"]
    assert told.reason.startswith("1 line holds no row: rows.jsonl:1")
    assert report.exit_code() == 0


@pytest.mark.parametrize("line", ["{broken", "[1, 2]", '"a text"', "3", '{"prompt": "a"'])
def test_lines_without_a_row_are_told(folder: Path, line: str) -> None:
    (folder / "rows.jsonl").write_text(ROWS + f"{line}\n{line}\n")
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    assert "2 lines hold no row: rows.jsonl:3" in " ".join(done.output.split())


@pytest.mark.parametrize("rows", [ROWS, f"{ROWS}\n\n", ROWS.replace("\n", "\r\n")])
def test_rows_that_are_all_read_get_no_word_on_lines(folder: Path, rows: str) -> None:
    (folder / "rows.jsonl").write_bytes(rows.encode())
    report: Any = truetune.reward("rewards.py:correct", "rows.jsonl")
    assert "rows" not in {one.what for one in report.not_judged}


def test_a_column_that_may_be_on_a_broken_line(folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"prompt": "a"}\n{broken\n')
    said = error_of("rewards.py:correct", "--data", "rows.jsonl")
    assert "no such column" in said
    assert "1 line holds no row: rows.jsonl:2" in said
    (folder / "rows.jsonl").write_text('{"prompt": "a"}\n')
    assert "no row" not in error_of("rewards.py:correct", "--data", "rows.jsonl")


def test_a_source_in_another_encoding(folder: Path) -> None:
    (folder / "rewards.py").write_bytes(b"# \xff\n" + EXACT.encode())
    assert "UnicodeDecodeError" in error_of("rewards.py:correct", "--data", "rows.jsonl")


def test_a_function_that_ends_its_process(folder: Path) -> None:
    (folder / "rewards.py").write_text(
        "import os\ndef correct(completions, answer, **kwargs):\n    os._exit(7)\n"
    )
    done = run("rewards.py:correct", "--data", "rows.jsonl")
    assert code_of(done) == 1
    assert "reward-raises" in done.output
    assert "the process ended with code 7" in done.output


OF_VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "gsm8k" and "index" in extra_info and "num_turns" in extra_info
    _, mark, found = solution_str.rpartition("####")
    is_right = bool(mark) and found.strip() == ground_truth
    return {"score": float(is_right), "acc": is_right}


def in_text(solution_str, ground_truth):
    return 1.0 if ground_truth in solution_str else 0.0


def at_once(data_sources, solution_strs, ground_truths, extra_infos=None):
    return [float(text == gold) for text, gold in zip(solution_strs, ground_truths)]
"""


@pytest.fixture
def verl(folder: Path) -> Path:
    """Functions of verl, and rows as its preparation writes them, in a Parquet file."""
    (folder / "score.py").write_text(OF_VERL)
    rows = [
        {
            "data_source": "gsm8k",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": "train", "index": number},
        }
        for number, (question, answer) in enumerate([("5 + 7?", "12"), ("30 * 41?", "1230")])
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train.parquet")
    return folder


def test_a_function_of_verl_is_called_for_each_completion_as_text(verl: Path) -> None:
    report = truetune.reward("score.py:compute_score", "train.parquet")
    assert (report.trial.reference_column, report.trial.completions_as) == ("ground_truth", "text")
    assert report.trial.best_form == "#### X"
    assert not any(finding.severity != "info" for finding in report.findings)
    assert "called as verl does" in " ".join(report.trial.notes)


def test_a_function_of_verl_is_attacked_as_others_are(verl: Path) -> None:
    found = {one.rule for one in truetune.reward("score.py:in_text", "train.parquet").findings}
    assert "reward-pays-parts-of-the-answer" in found
    assert "reward-refuses-arguments-of-trl" not in found


def test_a_function_of_verls_batch_manager_gets_all_at_once(verl: Path) -> None:
    report = truetune.reward("score.py:at_once", "train.parquet")
    assert report.trial.right_rows == 2
    assert not any(finding.severity != "info" for finding in report.findings)
