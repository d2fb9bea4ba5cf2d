"""Rules are judged each by itself: one that fails is not judged, the others stand, and the exit code says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import truetune
from tests.checks.pages import (
    answers,
    block,
    cause,
    environment,
    evaluation,
    reward,
    sections,
    serving,
)
from tests.report.test_sarif import SARIF
from truetune.auditing.audit import Audit
from truetune.checks.check_data import check, load_tokenizer_and_template
from truetune.checks.check_environment import judge_environment as judge_environment
from truetune.checks.find_causes_of_bad_answers import find_causes
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import judge_answers
from truetune.checks.judgement import Examined, Judgement, NotJudged, Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reports import DataReport, Report, add_judgement
from truetune.checks.rule import DataRule, Rule
from truetune.checks.rule_catalogue import all_rules, station_of_rule
from truetune.checks.rule_runner import REPORT_IT, run_rules
from truetune.checks.run_data_rules import DataRules
from truetune.cli import truetune_group
from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.errors import DataError, FastPathError
from truetune.evaluation.evaluate_losses_and_answers import judge_results as judge_evaluation
from truetune.probe.run_record import Record
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_report
from truetune.report.report_terminal import report_as_text
from truetune.report.sarif import report_as_sarif
from truetune.rewards.check_reward import judge_reward
from truetune.serving.check_server import judge_server as judge_service
from truetune.settings.run_spec import RunSpec, Severity

LOGS = Path(__file__).parents[1] / "logs" / "runs"
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)
SCRIPT = (
    "from transformers import Trainer,"
    " TrainingArguments\n\nTrainer(args=TrainingArguments('out')).train()\n"
)


class Failure(Exception):
    """No exception that truetune knows."""


class Sound(Rule[str]):
    """Something that is wrong."""

    code = "ENV009"
    severity: ClassVar[Severity] = "error"

    def measurement_if_clean(self) -> Measurement | str:
        return make_count_measurement("wrong letters", 0, len(self.subject))

    def findings(self) -> Iterator[Finding]:
        if "wrong" in self.subject:
            yield self.finding("wrong", "fix it")


class Raising(Sound):
    code = "ENV010"
    severity = "warning"
    at = ""

    def __init__(self, subject: str) -> None:
        super().__init__(subject)
        self._raise("init")

    def _raise(self, at: str) -> None:
        if self.at == at:
            raise Failure("two\nlines")

    def findings(self) -> Iterator[Finding]:
        self._raise("begin")
        yield from super().findings()
        self._raise("end")

    def unmet(self) -> Unmet | None:
        self._raise("unmet")
        return None

    def measurement_if_clean(self) -> Measurement | str:
        self._raise("figure")
        return super().measurement_if_clean()


@pytest.mark.parametrize("at", ["init", "begin", "end", "unmet", "figure"])
def test_a_rule_that_raises_is_not_judged_and_the_others_stand(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "at", at)
    judged = run_rules("fine", [Raising, Sound])
    assert judged.findings == ()
    assert [part.figure for part in judged.examined] == ["wrong letters: 0 of 4"]
    (missing,) = judged.not_judged
    assert (missing.what, missing.code, missing.asked) == (Raising.name(), "ENV010", True)
    assert missing.reason == "Failure: two lines"
    assert missing.unlock == REPORT_IT


@pytest.mark.parametrize(
    ("at", "own"), [("init", 0), ("begin", 0), ("end", 1), ("unmet", 1), ("figure", 1)]
)
def test_what_a_rule_found_before_it_failed_stands(
    at: str, own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "at", at)
    judged = run_rules("wrong", [Raising, Sound])
    assert [finding.code for finding in judged.findings] == ["ENV009", "ENV010"][: 1 + own]
    assert len(judged.not_judged) == (at not in ("unmet", "figure")), (
        "these are not asked where something is found"
    )


def test_needs_that_are_not_met_are_told_and_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raising, "unmet", lambda rule: Unmet("no rows", "name DATA"))
    judged = run_rules("fine", [Raising])
    assert judged == Judgement(
        not_judged=(
            NotJudged(Raising.name(), "no rows", "ENV010", unlock="name DATA", asked=False),
        )
    )
    assert [f.code for f in run_rules("wrong", [Raising]).findings] == ["ENV010"], (
        "a finding needs no more"
    )


def test_a_figure_is_given_as_text_and_as_numbers() -> None:
    (part,) = run_rules("fine", [Sound]).examined
    assert (part.figure, part.count, part.of) == ("wrong letters: 0 of 4", 0, 4)


def test_a_rule_that_had_nothing_to_count_is_not_judged() -> None:
    (part,) = run_rules("", [Sound]).not_judged
    assert (part.what, part.reason) == (
        Sound.name(),
        "there is nothing to count (wrong letters: 0 of 0)",
    )
    assert not run_rules("", [Sound]).examined


def test_a_fast_path_that_is_wrong_is_told_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rule: Raising) -> Iterator[Finding]:
        raise FastPathError("row 3 differs")

    monkeypatch.setattr(Raising, "findings", wrong)
    with pytest.raises(FastPathError):
        run_rules("fine", [Raising])


def test_the_same_reason_is_said_once() -> None:
    part = Judgement(examined=(Examined("r", "TT1", "x"),), not_judged=(NotJudged("r", "why"),))
    other = Judgement(not_judged=(NotJudged("r", "another why"),))
    assert len(Judgement.of([part, part, other]).not_judged) == 2
    assert len(Judgement.of([part, part]).examined) == 1


# Rules on data


STAGES = {
    "init": "__init__",
    "evaluation": "evaluation",
    "batch": "add_batch",
    "broken line": "broken_line",
    "findings": "findings",
    "figure": "measurement_if_clean",
    "report data": "report_data",
}


def broken_rule(method: str) -> type[DataRule]:
    class Fragile(DataRule):
        code, severity = "ENV010", "error"

    def fail(*_: object) -> Any:
        raise Failure(method)

    setattr(Fragile, method, fail)
    return Fragile


OTHERS = [rule for rule in all_rules("rows") if issubclass(rule, DataRule)]


@pytest.fixture(scope="module")
def rows_with_a_broken_line(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    lines = BROKEN.read_text(encoding="utf-8").splitlines()
    lines.insert(1, "{")
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return RunSpec(data=(str(path),), eval_data=(str(DATA),), tokenizer=str(TOKENIZER))


@pytest.fixture(scope="module")
def alone(rows_with_a_broken_line: RunSpec) -> DataReport:
    """What all rules but the fragile one say."""
    return check(rows_with_a_broken_line, OTHERS)


@pytest.mark.parametrize("method", STAGES.values(), ids=STAGES)
def test_a_data_rule_that_raises_leaves_the_others(
    method: str, rows_with_a_broken_line: RunSpec, alone: DataReport
) -> None:
    beside = check(rows_with_a_broken_line, [broken_rule(method), *OTHERS])
    assert beside.findings == alone.findings != ()
    assert beside.examined == alone.examined
    assert beside.data == alone.data
    (missing,) = [part for part in beside.not_judged if part not in alone.not_judged]
    assert (missing.code, missing.reason, missing.unlock) == (
        "ENV010",
        f"Failure: {method}",
        REPORT_IT,
    )
    assert beside.requested_not_judged() == (missing,)


def test_a_fast_path_that_is_wrong_ends_a_check_of_data() -> None:
    rule: Any = broken_rule("batch")

    def differ(*_: Any) -> None:
        raise FastPathError("differs")

    rule.batch = differ
    at_work = DataRules([rule], load_tokenizer_and_template(RunSpec(tokenizer=str(TOKENIZER))))
    with pytest.raises(FastPathError):
        at_work._call_or_drop_rule(rule, lambda: rule.batch(at_work.rules[0], None))


# Every command goes through the same path


def failing(monkeypatch: pytest.MonkeyPatch, family: str) -> type[Rule[Any]]:
    """The first rule of a family, which fails from now on."""
    rule = next(iter(all_rules(family)))

    def fail(self: Any) -> Any:
        raise Failure("injected")

    monkeypatch.setattr(rule, "findings", fail)
    return rule


def config(folder: Path) -> list[object]:
    (folder / "data.jsonl").write_text(DATA.read_text(encoding="utf-8"))
    path = folder / "truetune.yaml"
    path.write_text(
        f"model: {TOKENIZER}\ntokenizer: {TOKENIZER}\ndata: data.jsonl\nmax_length: 512\n"
    )
    return ["check", path]


def script(command: str) -> Callable[[Path], list[object]]:
    def made(folder: Path) -> list[object]:
        (folder / "train.py").write_text(SCRIPT)
        return [command, folder / "train.py"]

    return made


def adapter(folder: Path) -> list[object]:
    import numpy as np
    from safetensors.numpy import save_file

    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4})
    )
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    ones = {
        f"{name}A.weight": np.ones((2, 8), np.float32),
        f"{name}B.weight": np.ones((8, 2), np.float32),
    }
    save_file(ones, folder / "adapter_model.safetensors")
    return ["check", folder]


COMMANDS: dict[str, tuple[str, Callable[[Path], list[object]]]] = {
    "check rows": ("rows", lambda folder: ["check", DATA, "-t", TOKENIZER]),
    "check tokenizer": ("tokenizer", lambda folder: ["check", TOKENIZER]),
    "check settings": ("config", config),
    "check machine": ("devices", config),
    "check source": ("source", script("check")),
    "lint": ("source", script("lint")),
    "check log": ("log", lambda folder: ["check", LOGS / "healthy-sft-lora.json"]),
    "diagnose": ("log", lambda folder: ["diagnose", LOGS / "healthy-sft-lora.json"]),
    "check checkpoint": ("checkpoint", adapter),
    "doctor": ("environment", lambda folder: ["doctor", "--no-imports"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_rule_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 and the rule's name; all that the other rules say stands; --allow-unjudged gives 0."""
    family, made = COMMANDS[name]
    arguments = [str(argument) for argument in made(tmp_path)]

    def ran(*more: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(
            truetune_group, [*arguments, "--json", *more], standalone_mode=False
        )
        assert done.exception is None, done.exception
        return int(done.return_value), json.loads(done.stdout)

    code, before = ran("--fail-on", "error")
    rule = failing(monkeypatch, family)
    assert station_of_rule(rule) == family
    broken_code, after = ran()
    missing = [part for part in after["not_judged"] if part["asked"]]
    assert [
        (part["what"], part["code"], part["reason"].rpartition(": ")[2])
        for part in missing
        if part not in before["not_judged"]
    ] == [(rule.name(), rule.code, "injected")]
    assert all(
        finding in after["findings"]
        for finding in before["findings"]
        if finding["rule"] != rule.name()
    )
    kept = [part for part in before["examined"] if part["rule"] != rule.name()]
    assert [(part["rule"], part["code"]) for part in after["examined"]] == [
        (p["rule"], p["code"]) for p in kept
    ]
    assert broken_code == (code or 3)
    assert ran("--allow-unjudged")[0] == code
    jsonschema.validate(after, SCHEMA)


JUDGES: dict[str, Callable[[str, RunSpec], Judgement]] = {
    "answers": lambda text, spec: judge_answers(answers.watched(yaml.safe_load(text)), spec),
    "cause": lambda text, spec: find_causes(cause.inquest(yaml.safe_load(text)), spec),
    "evaluation": lambda text, spec: judge_evaluation(evaluation.evaluated(yaml.safe_load(text)), spec),
    "serving": lambda text, spec: judge_service(serving.service(yaml.safe_load(text)), spec),
    "reward": lambda text, spec: judge_reward(reward.tried(yaml.safe_load(text)), spec),
    "environment": lambda text, spec: (
        lambda report: Judgement(report.findings, report.examined, report.not_judged)
    )(judge_environment(environment.environment(yaml.safe_load(text)), spec)),
}  # fmt: skip


@pytest.mark.parametrize("family", JUDGES)
def test_a_rule_that_fails_on_a_finished_model_a_server_or_a_machine(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `sample`, `evaluate`, `serve-check` and `doctor` judge, on the example of the family's last rule."""
    example = block(sections(list(all_rules(family))[-1])["Example"])
    spec = RunSpec()
    before = JUDGES[family](example, spec)
    rule = failing(monkeypatch, family)
    after = JUDGES[family](example, spec)
    missing = [part for part in after.not_judged if part not in before.not_judged]
    assert [(part.what, part.reason, part.asked) for part in missing] == [
        (rule.name(), "Failure: injected", True)
    ]
    assert {f.rule for f in before.findings} - {rule.name()} <= {f.rule for f in after.findings}


@pytest.mark.parametrize("family", ["batch", "law", "recitation"])
def test_a_rule_that_fails_on_a_run(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = failing(monkeypatch, family)
    facts = {"laws": {}, "trainer": {"kind": "sft"}, "model": {"config": {}}, "recitation": {}}
    judged = run_rules(Audit((Record(facts),), (), None, frozenset()), all_rules(family))
    failed = [part for part in judged.not_judged if part.reason == "Failure: injected"]
    assert [part.code for part in failed] == [rule.code]


# Exit codes, and every medium


ERROR = Finding("pad-is-stop-token", "TOK001", "error", "wrong", "fix it")
FINE = Examined("pad-missing", "TOK002", "The tokenizer has no pad token.", "1 of 1")
LOST = NotJudged(
    "tokenizer-pads-on-the-left",
    "Failure: <b>x</b>",
    "TOK003",
    place="checks/a.py:1",
    unlock=REPORT_IT,
)
TOLD = NotJudged(
    "train-eval-leak", "no evaluation data are named", "ROW006", unlock="--eval-data", asked=False
)


def report(*parts: Finding | Examined | NotJudged, **settings: Any) -> Report:
    of = [
        [part for part in parts if isinstance(part, kind)]
        for kind in (Finding, Examined, NotJudged)
    ]
    judged = Judgement(*map(tuple, of))  # type: ignore[arg-type]
    return add_judgement(Report(spec=RunSpec(**settings), findings=(), seconds=0.0), judged)


@pytest.mark.parametrize(
    ("made", "outcome", "code"),
    [
        (report(FINE), "no findings", 0),
        (report(FINE, TOLD), "no findings", 0),
        (report(FINE, LOST), "not judged", 3),
        (report(), "not judged", 3),
        (report(TOLD), "not judged", 3),
        (report(ERROR, LOST), "findings", 1),
        (report(ERROR), "findings", 1),
        (report(FINE, LOST, allow_unjudged=True), "not judged", 0),
        (report(allow_unjudged=True), "not judged", 0),
        (report(ERROR, LOST, allow_unjudged=True), "findings", 1),
    ],
)
def test_three_states(made: Report, outcome: str, code: int) -> None:
    assert (made.outcome, made.exit_code(), made.failed()) == (outcome, code, code == 1)
    value = report_as_dict(made)
    jsonschema.validate(value, SCHEMA)
    assert (value["outcome"], value["failed"]) == (outcome, code == 1)
    log = json.loads(report_as_sarif(made))
    jsonschema.validate(log, SARIF)
    (invocation,) = log["runs"][0]["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (
        code,
        not made.is_incomplete(),
    )
    notes = [
        (note["level"], note["associatedRule"]["id"])
        for note in invocation["toolExecutionNotifications"]
    ]
    assert notes == [("warning" if part.asked else "note", part.code) for part in made.not_judged]
    text = html_page_of_report(made)
    assert ("no findings" in report_as_text(made)) is (outcome == "no findings")
    assert ('<p class="headline fine">No findings' in text) is (outcome == "no findings")
    assert ('<p class="headline open">Not judged' in text) is (outcome == "not judged")
    assert outcome in repr(made) or made.findings


def test_what_is_not_judged_stands_in_the_page_with_its_reason() -> None:
    text = html_page_of_report(report(FINE, LOST))
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>x</b>" not in text
    assert "checks/a.py:1" in text
    assert REPORT_IT in text
    assert "1 of 1" in text, "the figure of what is fine"
    assert "&lt;b&gt;x&lt;/b&gt;" in report(FINE, LOST)._repr_html_().replace("&amp;", "&")


def test_a_joined_page_has_the_gravest_state(tmp_path: Path) -> None:
    written = []
    for name, made in (("fine", report(FINE)), ("lost", report(FINE, LOST))):
        written.append(tmp_path / f"{name}.json")
        made.save_as(written[-1])
    done = CliRunner().invoke(
        truetune_group,
        ["report", *map(str, written), "-o", str(tmp_path / "r.json"), "-q"],
        standalone_mode=False,
    )
    assert done.exception is None
    value = json.loads((tmp_path / "r.json").read_text())
    assert (value["outcome"], value["failed"], done.return_value) == ("not judged", False, 3)
    assert [part["what"] for part in value["not_judged"]] == ["tokenizer-pads-on-the-left"]
    for arguments, code in ((["--allow-unjudged"], 0), ([], 3)):
        done = CliRunner().invoke(
            truetune_group, ["report", str(written[1]), "--json", *arguments], standalone_mode=False
        )
        assert done.return_value == code


# Rows


def row(number: int) -> str:
    said = [
        {"role": "user", "content": f"How many figs are in box {number}?"},
        {"role": "assistant", "content": "Nine"},
    ]
    return json.dumps({"messages": said})


def looked_at(folder: Path, *files: str, **settings: Any) -> truetune.DataReport:
    names = []
    for number, text in enumerate(files):
        names.append(str(folder / f"{number}.jsonl"))
        Path(names[-1]).write_text(text)
    made = truetune.check(data=names, tokenizer=str(TOKENIZER), **settings)
    assert isinstance(made, truetune.DataReport)
    return made


BAD = [
    "{",
    "[1, 2]",
    "7",
    "null",
    '{"messages": [',
    "nonsense",
    '"text"',
    "\x00",
    '{"a": NaN',
    "{}}",
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [1, 3])
def test_one_broken_line_is_a_case_and_ends_no_check(bad: str, at: int, tmp_path: Path) -> None:
    lines = [row(number) for number in range(3)]
    lines.insert(at, bad)
    made = looked_at(tmp_path, "\n".join(lines) + "\n")
    (finding,) = [finding for finding in made.findings if finding.rule == "malformed-rows"]
    assert finding.severity == "error"
    assert (finding.count, finding.total) == (1, 4)
    (case,) = finding.cases
    assert case.origin is not None
    assert (case.origin.line, case.origin.row) == (at + 1, at)
    assert str(tmp_path) not in case.text, "the place stands before it"
    assert (made.rows, made.exit_code()) == (3, 1)
    assert {view.example.row.origin.row for view in made.views} <= {0, 1, 2, 3} - {at}


def test_a_first_line_that_is_broken(tmp_path: Path) -> None:
    made = looked_at(tmp_path, f"nonsense\n{row(0)}\n")
    assert [(f.rule, f.cases[0].origin and f.cases[0].origin.line) for f in made.findings] == [
        ("malformed-rows", 1)
    ]
    assert made.formats == {"messages": 1}


def test_broken_lines_of_evaluation_data_end_no_check(tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text(f"{row(7)}\n{{\n{row(0)}\n")
    made = looked_at(
        tmp_path, f"{row(0)}\n{row(1)}\n", eval_data=[str(held_out)], select=["train-eval-leak"]
    )
    (finding,) = made.findings
    assert [case.origin and (case.origin.line, case.origin.row) for case in finding.cases] == [
        (3, 2)
    ]
    (missing,) = made.requested_not_judged()
    assert (missing.what, missing.place) == (
        "1 broken line of the evaluation data",
        f"{held_out}:2",
    )
    held_out.write_text("{\n")
    with pytest.raises(DataError, match=r"held-out\.jsonl:1"):
        looked_at(tmp_path, row(0) + "\n", eval_data=[str(held_out)])


def test_evaluation_data_without_a_row_say_nothing_of_leaks(tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text("")
    made = looked_at(tmp_path, row(0) + "\n", eval_data=[str(held_out)], select=["train-eval-leak"])
    assert (made.outcome, made.exit_code(), made.examined) == ("not judged", 3, ())
    assert {part.what for part in made.requested_not_judged()} == {"train-eval-leak", str(held_out)}


def test_rows_behind_a_broken_line_keep_their_numbers(tmp_path: Path) -> None:
    made = looked_at(tmp_path, f"{row(0)}\n{{\n{row(0)}\n", select=["duplicate-rows"])
    (finding,) = made.findings
    assert [case.origin and (case.origin.line, case.origin.row) for case in finding.cases] == [
        (3, 2)
    ]
    (missing,) = made.requested_not_judged()
    assert missing.what == "1 broken line", "the rule that reports it was not chosen"
    assert ":2" in missing.place


@pytest.mark.parametrize("text", ["{\n[\n", "nonsense\n" * 5, "{\n" * 1_500])
def test_lines_that_all_are_broken_can_not_be_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    done = CliRunner().invoke(
        truetune_group, ["check", str(path), "-t", str(TOKENIZER)], standalone_mode=False
    )
    assert isinstance(done.exception, DataError)
    assert f"{path}:1: " in str(done.exception)


def test_an_empty_file_beside_a_good_one_is_not_judged(tmp_path: Path) -> None:
    made = looked_at(tmp_path, row(0) + "\n", "")
    assert (made.rows, made.outcome, made.exit_code()) == (1, "not judged", 3)
    (missing,) = made.requested_not_judged()
    assert (missing.what, missing.reason) == (str(tmp_path / "1.jsonl"), "the file holds no row")


def test_an_empty_file_alone_is_not_judged(tmp_path: Path) -> None:
    made = looked_at(tmp_path, "")
    assert (made.rows, made.outcome, made.exit_code()) == (0, "not judged", 3)


# Lint


@pytest.mark.parametrize(
    ("files", "code", "word"),
    [
        ({"a.py": SCRIPT}, 0, "no findings, "),
        ({"a.py": "x = 1\n"}, 3, "not judged: 1 of 1 file: no code that trains"),
        ({"a.py": ""}, 3, "not judged: 1 of 1 file: no code that trains"),
        ({}, 3, "not judged, 0 checks"),
        ({"a.py": "x = 1\n", "b.py": SCRIPT}, 0, "no findings, "),
        ({"a.py": "def (:\n", "b.py": SCRIPT}, 3, "not judged: code of "),
        (
            {
                "a.py": (
                    "def helper(tokenizer):\n    return tokenizer.apply_chat_template([],"
                    " tokenize=False)\n"
                )
            },
            0,
            "no findings",
        ),
        (
            {
                "n.ipynb": json.dumps(
                    {
                        "nbformat": 4,
                        "cells": [
                            {"cell_type": "code", "source": SCRIPT},
                            {"cell_type": "code", "source": "def (:"},
                        ],
                    }
                )
            },
            3,
            "not judged: code of ",
        ),
    ],
    ids=["a script", "none", "empty", "no file", "one of two", "not parsed", "a helper", "a cell"],
)
def test_lint_says_what_no_rule_could_look_at(
    files: dict[str, str], code: int, word: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    made = truetune.lint([tmp_path])
    assert made.exit_code() == code
    assert word in " ".join(report_as_text(made).split())
    assert ("no findings" in report_as_text(made)) is (code == 0)
    assert truetune.lint([tmp_path], allow_unjudged=True).exit_code() == 0


def test_who_leaves_out_the_rule_on_syntax_takes_files_that_are_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print 'x'\n")
    (tmp_path / "b.py").write_text(SCRIPT)
    assert truetune.lint([tmp_path], ignore=["source-not-parsed"]).exit_code() == 0
    assert truetune.lint([tmp_path], select=["SRC010"]).exit_code() == 3
