"""The terminal: exact text at 80 columns, nothing wider than the window, nothing from the data but text."""

from __future__ import annotations

import dataclasses
import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import truetune
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Examined, NotJudged
from truetune.checks.reports import DataReport, Lengths
from truetune.checks.rule_catalogue import all_rules
from truetune.data.conversation import Origin
from truetune.demo import DATA, TOKENIZER
from truetune.encoding.token_counts import Ledger
from truetune.render.rendering import Source
from truetune.report.record_terminal_drawing_as_tables import record_drawing
from truetune.report.report_terminal import render_report, report_as_text
from truetune.report.rules_terminal import render_rules
from truetune.report.visible_text import (
    escape_invisible_characters,
    format_per_cent_share,
    wrap_text,
)
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Training

PAD = Finding(
    rule="pad-is-stop-token",
    code="TOK001",
    severity="error",
    message=(
        "the pad token <|im_end|> (3) also ends turns, so a collator that masks by id never lets it"
        " be learned"
    ),
    remedy=(
        "set pad_token to <|pad|>, which is in the vocabulary (id 1) and which no turn ends with;"
        " no resize is due"
    ),
    evidence=("eos_token is <|im_end|> (3)",),
    cases=(Case("pad_token", file="tokenizer_config.json"),),
)
SHORT = Finding(
    rule="no-supervised-token",
    code="LEN006",
    severity="warning",
    message="5 of 200 rows have no supervised token",
    remedy="give them an answer",
    cases=(
        Case("roles: user", Origin("data/chats.jsonl", 18, 17)),
        Case(
            "roles: system, user, and then nobody who would answer any of it",
            Origin("data/chats.jsonl", 32, 31),
            2,
        ),
        Case(
            "",
            Origin(
                "data/a folder/with a very long name/and one more folder/that is too wide.jsonl",
                36,
                35,
            ),
        ),
    ),
    count=5,
    total=200,
)
EXAMINED = (
    Examined("pad-missing", "TOK002", "The tokenizer has no pad token."),
    Examined("duplicate-rows", "ROW007", "The data contains duplicate rows.", "0 of 200 rows"),
)
NOT_JUDGED = (
    NotJudged(
        "stop-ids-incomplete",
        "ValueError: no such token",
        "TOK005",
        place="checks/tokenizer/stop_ids_incomplete.py:41",
        unlock="report it",
    ),
    NotJudged(
        "train-eval-leak",
        "no evaluation data are named",
        "ROW006",
        unlock="name them with --eval-data",
        asked=False,
    ),
)
DATE = Finding(
    "date-in-template", "TPL007", "info", "the template writes today's date", "nothing to do"
)


def report(*findings: Finding, limit: int | None = 512) -> DataReport:
    counts = np.zeros((len(Source), 2), dtype=np.int64)
    counts[Source.TEMPLATE, 0], counts[Source.USER, 0] = 1_000, 2_500
    counts[Source.ASSISTANT, 1], counts[Source.STOP, 1] = 6_300, 200
    lengths = Lengths(
        counts=np.array([120, 79, 0, 1]), edges=np.array([0, 200, 400, 600, 800]),
        median=98, p95=178, longest=740, limit=limit, over=1, lost_tokens=228, lost_supervised=0,
    )  # fmt: skip
    return DataReport(
        spec=RunSpec(max_length=limit), tokenizer="models/small", facts={"eos": "<|im_end|> (3)"}, rows=200,
        examples=200, rejected=0, unsupervised=5, formats={"messages": 200}, ledger=Ledger(counts), lengths=lengths,
        findings=findings, examined=EXAMINED, not_judged=NOT_JUDGED, views=(), seconds=1.25,
    )  # fmt: skip


def drawn(made: DataReport, width: int = 80, *, verbose: bool = False, quiet: bool = False) -> str:
    buffer = io.StringIO()
    render_report(made, Console(file=buffer, width=width), verbose=verbose, quiet=quiet)
    return buffer.getvalue()


def test_the_whole_report_at_80_columns() -> None:
    assert drawn(report(PAD, SHORT, DATE)) == WHOLE


WHOLE = """\
trains on 6,500 of 10,000 tokens (65.0 %) in 200 examples: assistant content
96.9 %, stop token 3.1 %

error[TOK001] pad-is-stop-token: the pad token <|im_end|> (3) also ends turns,
so a collator that masks by id never lets it be learned
  --> tokenizer_config.json: pad_token
   = note: eos_token is <|im_end|> (3)
   = help: set pad_token to <|pad|>, which is in the vocabulary (id 1) and which
           no turn ends with; no resize is due

warning[LEN006] no-supervised-token: 5 of 200 rows have no supervised token
  --> data/chats.jsonl:18: roles: user
  --> data/chats.jsonl:32 (turn 2)
   | roles: system, user, and then nobody who would answer any of it
  --> data/a folder/with a very long name/and one more folder/that is too wide.jsonl:36
  ... and 2 more
   = help: give them an answer

info[TPL007] date-in-template: the template writes today's date

not judged: stop-ids-incomplete: ValueError: no such token
(checks/tokenizer/stop_ids_incomplete.py:41); report it
1 error, 1 warning, 1 note, 2 checks examined and fine, 2 not judged (-v lists
them) · 200 rows in 1.2 s
more on a rule: truetune explain RULE · on a row: truetune show FILE:LINE
figures by source and length: -v
"""
FIGURES = """\

tokens by source   supervised  context    share
template text               0    1,000   10.0 %
user                        0    2,500   25.0 %
assistant content       6,300        0   63.0 %
stop token                200        0    2.0 %
all                     6,500    3,500  100.0 %
5 of 200 examples without a supervised token

length in tokens: median 98, 95 % up to 178, longest 740
    0 to 199 ██████████████████████████████ 120
  200 to 399 ███████████████████▊ 79
  400 to 599 0
  600 to 799 ▎ 1
over max_length 512: 1 example (0.5 %); a cut there would lose 228 tokens, 0 of
them supervised

"""


def test_figures_are_last_and_folded_where_there_are_findings() -> None:
    assert drawn(report(PAD, SHORT, DATE), verbose=True).endswith(
        f"truetune show FILE:LINE\n{FIGURES}"
    )
    folded_out = drawn(dataclasses.replace(report(DATE), not_judged=()))
    assert folded_out.endswith(f"run -- python train.py\n{FIGURES}"), "a note is no finding"


def test_the_three_parts_of_a_verdict() -> None:
    """In order: what is found, what was examined with its figure, what was not judged, the counts, the next step."""
    whole = drawn(report(PAD), verbose=True)
    parts = [
        "error[TOK001]",
        "fine: pad-missing (TOK002): not so: The tokenizer has no pad token.\n",
        "fine: duplicate-rows (ROW007): 0 of 200 rows\n",
        "not judged: stop-ids-incomplete: ValueError: no such token",
        "not judged: train-eval-leak: no evaluation data are named; name them with",
        "1 error, 2 checks examined and fine, 2 not judged",
        "more on a rule",
    ]
    places = [whole.index(part) for part in parts]
    assert places == sorted(places)
    short = drawn(report())
    assert "train-eval-leak" not in short, "nobody asked for it"
    assert "fine:" not in short
    assert "\nnot judged: stop-ids-incomplete: " in short
    assert "\nnot judged, 2 checks examined and fine, 2 not judged (-v lists them) · 200" in short


def test_verbose_draws_notes_in_full_and_the_facts() -> None:
    text = drawn(report(DATE), verbose=True)
    assert (
        "info[TPL007] date-in-template: the template writes today's date\n   = help: nothing to"
        " do\n\n" in text
    )
    assert "tokenizer models/small\neos <|im_end|> (3)\n" in text


def test_quiet_draws_findings_alone() -> None:
    clean, dated = (dataclasses.replace(one, not_judged=()) for one in (report(), report(DATE)))
    assert drawn(clean, quiet=True) == ""
    assert (
        drawn(dated, quiet=True)
        == "info[TPL007] date-in-template: the template writes today's date\n"
    )
    assert report_as_text(dated, quiet=True) == drawn(dated, quiet=True)


def test_quiet_says_in_a_line_what_was_not_judged_where_that_is_the_exit_code() -> None:
    asked = dataclasses.replace(
        report(limit=None),
        not_judged=tuple(dataclasses.replace(part, asked=True) for part in NOT_JUDGED),
    )
    assert asked.exit_code() == 3
    (line,) = drawn(asked, quiet=True).splitlines()
    assert line.startswith("not judged: stop-ids-incomplete: ValueError: no such token")
    assert line.endswith("(and 1 more)")
    spec = asked.spec.model_copy(update={"allow_unjudged": True})
    assert drawn(dataclasses.replace(asked, spec=spec), quiet=True) == ""


def test_answers_of_rows_are_references_where_the_training_samples_its_own() -> None:
    training = Training(method="grpo")
    rows = dataclasses.replace(
        report(), spec=report().spec.model_copy(update={"training": training})
    )
    shown = drawn(rows)
    assert re.search(r"tokens by source +reference +prompt +share", shown)
    assert "none of their tokens is trained on" in " ".join(shown.split())
    assert "without a supervised token" not in shown
    assert re.search(r"tokens by source +supervised +context +share", drawn(report()))


def test_a_run_without_findings_and_one_that_learns_nothing() -> None:
    fine = dataclasses.replace(report(limit=None), not_judged=())
    assert (
        "\nno findings, 2 checks examined and fine (-v lists them) · 200 rows in 1.2 s\nnext: "
        in drawn(fine)
    )
    assert "max_length" not in drawn(fine)
    nothing = dataclasses.replace(
        fine, ledger=Ledger(np.zeros_like(fine.ledger.counts)), rejected=3
    )
    assert drawn(nothing).startswith("learns nothing: no token of 200 examples is supervised\n")
    assert "\n3 of 200 rows on which the template raises\n" in drawn(nothing)
    refused = dataclasses.replace(nothing, examples=0, rejected=200)
    assert drawn(refused).startswith(
        "what is learned is not known: the tokenizer's template renders none of 200 rows"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_window(broken: DataReport, width: int) -> None:
    text = drawn(broken, width, verbose=True)
    for line in text.splitlines():
        assert cell_len(line) <= width or line.startswith("  --> ")
    for finding in broken.findings:
        assert f"{finding.severity}[{finding.code}] {finding.rule}: {finding.message}" in " ".join(
            text.split()
        )


def test_nothing_reaches_the_terminal_but_text(hostile: DataReport) -> None:
    for text in (
        drawn(hostile),
        drawn(hostile, verbose=True),
        report_as_text(hostile, verbose=True),
    ):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "[bold red]x[/]" in text
        assert "<b>&\\x1b[31m{0}[a](b)\\u202e.jsonl:1" in text


def test_colour_only_where_asked() -> None:
    buffer = io.StringIO()
    render_report(
        report(PAD),
        Console(file=buffer, width=80, force_terminal=True, color_system="standard", _environ={}),
    )
    assert "\x1b[1;31merror[TOK001]\x1b[0m" in buffer.getvalue()
    assert "\x1b" not in drawn(report(PAD))


def test_bars_without_unicode() -> None:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    render_report(report(), Console(file=buffer, width=80))
    buffer.seek(0)
    assert "  0 to 199 ############################## 120\n" in buffer.read()


@pytest.mark.parametrize(("width", "is_below"), [(80, True), (200, False)])
def test_titles_of_rules_are_shown_on_narrow_terminals(width: int, is_below: bool) -> None:
    rules = [rule for rule in all_rules("cause") if len(rule.title()) < 70]
    buffer = io.StringIO()
    render_rules(Console(file=buffer, width=width, force_terminal=True, color_system=None), rules)
    lines = buffer.getvalue().splitlines()
    for rule in rules:
        (place,) = (number for number, line in enumerate(lines) if line.startswith(rule.code))
        assert lines[place + is_below].strip().endswith(rule.title())
        assert rule.name() in lines[place]


def test_rule_names_are_not_cut() -> None:
    buffer = io.StringIO()
    render_rules(Console(file=buffer, width=80))
    assert "chat-template-not-prefix-stable" in buffer.getvalue()


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("aa bb cc", 5, ["aa bb", "cc"]),
        ("aaaaaaaa b", 3, ["aaa", "aaa", "aa", "b"]),
        ("日本語 日本", 5, ["日本", "語", "日本"]),
        ("about 94.7 % of it", 10, ["about", "94.7 % of", "it"]),
        ("a  b", 9, ["a  b"]),
    ],
)
def test_wrapping(text: str, width: int, lines: list[str]) -> None:
    assert wrap_text(text, width) == lines


def test_what_is_visible() -> None:
    assert escape_invisible_characters("plain, ünïcode, 日本 👍") == "plain, ünïcode, 日本 👍"
    assert (
        escape_invisible_characters("\x1b\u200b\u202e\u00a0\u3164\ufe0f\u2028\n\t\ud800")
        == "\\x1b\\u200b\\u202e\\xa0\\u3164\\ufe0f\\u2028\\n\\t\\ud800"
    )
    assert (format_per_cent_share(1, 8), format_per_cent_share(0, 0)) == ("12.5 %", "0.0 %")


def test_a_table_of_many_answers_ends_with_how_many_are_left_out() -> None:
    answers = [f"The ferry to island {number} leaves at noon." for number in range(30)]
    buffer = io.StringIO()
    render_report(truetune.score(answers, answers, answers), Console(file=buffer, width=100))
    text = buffer.getvalue()
    assert "island 23" in text
    assert "island 24" not in text
    assert "... and 6 more (-v draws each, --html FILE shows all)" in text


def test_text_in_a_notebook_is_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich shows each line of a console as an output of its own there, whatever file it has."""
    report = truetune.check(data=str(DATA), tokenizer=str(TOKENIZER))
    expected = str(report)
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *given: shown.append(given))
    assert Console(file=io.StringIO()).is_jupyter
    assert str(report) == expected
    (line,) = record_drawing(lambda console: console.print("one line"))
    assert line["text"] == "one line"
    assert shown == []
