"""A rule's page shows the files that people write, the fix as a difference, and how sure the rule
is.
"""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from tests.checks.pages import block, sections
from truetune.checks.rule_catalogue import all_rules, find_rule
from truetune.cli import truetune_group
from truetune.report.rule_pages.example_files import fact_lines
from truetune.report.rule_pages.examples_of_code import example_of_script
from truetune.report.rule_pages.read_example import examples_of_rule, sections_of_page
from truetune.report.rule_pages.rule_page_for_readers import (
    fenced,
    rule_page_for_readers,
    severity_under_trainer,
    shown_heading,
)
from truetune.report.rule_pages.shorten_text import MAX_RECORDS, shorten_line, shorten_text
from truetune.trainers import TRAINERS

RULES = all_rules()
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_page_has_files_in_a_known_language() -> None:
    lexers = pytest.importorskip("pygments.lexers")
    for rule in RULES:
        examples = examples_of_rule(rule)
        assert examples is not None, rule.name()
        before, after = examples
        assert before.files or before.notes, rule.name()
        for file in (*before.files, *after.files):
            lexers.get_lexer_by_name(file.language)


def test_no_page_shows_the_block_of_its_test() -> None:
    for rule in RULES:
        page = rule_page_for_readers(rule)
        for heading in ("Example", "Use instead"):
            written = block(sections(rule)[heading]).strip()
            is_described = sections(rule)[heading].startswith("```yaml")
            is_fact = len(written.splitlines()) == 1
            assert not (is_described and not is_fact and written in page), rule.name()
            assert sections_of_page(page)[shown_heading(rule, heading)], rule.name()


def test_each_page_says_how_sure_the_rule_is() -> None:
    for rule in RULES:
        certainty = sections_of_page(rule_page_for_readers(rule))["How sure it is"]
        assert certainty.lower().startswith(rule.stability)
        assert f"*{rule.severity}*" in certainty


def test_the_fix_is_a_difference() -> None:
    page = rule_page_for_readers(find_rule("turn-roles-unknown-to-template"))
    found = FENCE.search(sections_of_page(page)["Use instead"])
    assert found is not None
    assert found["language"] == "diff"
    assert [line[0] for line in found["text"].splitlines()] == ["-", "+", " "]


def test_an_outcome_is_shown_whole_and_not_as_an_edit() -> None:
    sections_of_outcome = sections_of_page(rule_page_for_readers(find_rule("loss-spikes")))
    assert "Use instead" not in sections_of_outcome
    found = FENCE.search(sections_of_outcome["The same without the fault"])
    assert found is not None
    assert found["language"] != "diff"


def test_what_is_printed_stands_between_example_and_fix() -> None:
    headings = list(sections_of_page(rule_page_for_readers(RULES[0], printed="error[X]: y")))
    place = headings.index("What truetune prints")
    assert headings[place - 1 : place + 2 : 2] == ["Example", "Use instead"]


def test_severity_depends_on_the_trainer() -> None:
    rule = find_rule("pad-is-stop-token")
    by_trainer = {name: severity_under_trainer(rule, facts) for name, facts in TRAINERS.items()}
    assert by_trainer["transformers"] == "error"
    assert by_trainer["trl"] == "info"
    assert by_trainer["truetune"] is None
    assert "the rule does not apply" in rule_page_for_readers(rule)


def test_comments_that_stand_for_files_become_files() -> None:
    text = '# job.sh: SMOKE_TEST=1 python train.py\n# ages: {"job.sh": 7200}\n\nimport os\n'
    example = example_of_script(text)
    assert [(file.name, file.language) for file in example.files] == [
        ("train.py", "python"),
        ("job.sh", "bash"),
    ]
    assert example.files[0].text == "import os\n"
    assert example.notes == ("`job.sh` was written 120 minutes ago.",)


def test_long_files_of_rows_are_shortened_and_say_so() -> None:
    rows = "".join(f'{{"text": "row {number}"}}\n' for number in range(100))
    short = shorten_text(rows, records_to_show=4)
    assert (short.lines, short.all_lines) == (4, 100)
    lines = short.text.splitlines()
    assert lines[0] == '{"text": "row 0"}'
    assert lines[-1] == '{"text": "row 99"}'
    assert "..." in lines
    assert shorten_text(rows).text == rows


@pytest.mark.parametrize("count", [1, MAX_RECORDS, MAX_RECORDS + 1, 57])
def test_shown_lines_are_lines_of_the_file(count: int) -> None:
    lines = [f"line {number} " + "ab cd"[: number % 5] for number in range(count)]
    for shown in (4, 14):
        short = shorten_text("\n".join(lines), records_to_show=shown)
        left = [line for line in short.text.splitlines() if line != "..."]
        assert set(left) <= set(lines)
        assert len(left) == short.lines
        assert {lines[0], lines[-1]} <= set(left)


def test_equal_rows_are_counted() -> None:
    short = shorten_text("same\n" * 300, records_to_show=4)
    assert short.text == "same\n... (299 more lines like this one)\n"


def test_repeated_text_is_counted() -> None:
    assert shorten_line("word " * 400).startswith("word word  ... (400 times in all)")
    assert shorten_line("    return x  # " + "-" * 40) == "    return x  # " + "-" * 40
    long = "".join(f"{number:x}" for number in range(1000))
    assert "characters)" in shorten_line(long)
    assert len(shorten_line(long)) < 400


def test_a_fence_is_longer_than_those_in_its_text() -> None:
    assert fenced("a\n```\nb\n", "text") == "````text\na\n```\nb\n````"


def test_facts_are_one_a_line() -> None:
    facts = {
        "stop": {"probability": 0.9, "leaked": True},
        "prompts": [{"name": "one", "same": None}],
    }
    assert fact_lines(facts) == [
        "stop probability: 0.9",
        "stop leaked: yes",
        "prompts: name one, same unknown",
    ]


def test_explain_shows_the_files() -> None:
    shown = CliRunner().invoke(truetune_group, ["explain", "turn-roles-unknown-to-template"])
    assert "data.jsonl" in shown.output
    assert "How sure it is" in shown.output
    as_json = CliRunner().invoke(truetune_group, ["explain", "TOK001", "--format", "json"])
    assert "`tokenizer/tokenizer_config.json`" in json.loads(as_json.output)["page"]
