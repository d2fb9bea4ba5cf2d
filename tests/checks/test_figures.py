"""What is examined and fine has its figure: given by every rule on data, true, and never over nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
import pytest
import tokenizers

from tests import parts, verdicts_page
from tests.checks.pages import block, sections
from tests.checks.pages import data as data_blocks
from tests.checks.pages.fixed import NOT_APPLYING, fixed
from truetune.checks.check_data import UNCOUNTED_MEDIA, check
from truetune.checks.judgement import Examined
from truetune.checks.reports import DataReport
from truetune.checks.rule import DataRule, Rule
from truetune.checks.rule_catalogue import DATA, all_rules
from truetune.demo import DATA as DEMO
from truetune.demo import TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.report_terminal import report_as_text
from truetune.settings.run_spec import RunSpec


@pytest.mark.parametrize("rule", all_rules(*DATA), ids=lambda rule: rule.name())
def test_every_rule_on_data_gives_its_figure(rule: type[Rule[Any]], tmp_path: Path) -> None:
    report = data_blocks.report(rule, fixed(rule), tmp_path)
    assert not report.findings
    # That lengths leave pictures out is said by the verdict, whatever the rule is.
    assert not [part for part in report.not_judged if part.what != UNCOUNTED_MEDIA]
    (part,) = report.examined
    assert part.figure
    if part.count is not None:
        assert part.of is not None
        assert 0 <= part.count <= part.of
        assert part.of > 0
        assert f": {part.count:,} of {part.of:,}" in part.figure


@pytest.mark.parametrize(
    "rule",
    [rule for rule in all_rules(*DATA) if rule.name() in NOT_APPLYING],
    ids=lambda rule: rule.name(),
)
def test_the_fixed_examples_of_these_rules_are_not_judged(
    rule: type[Rule[Any]], tmp_path: Path
) -> None:
    report = data_blocks.report(rule, block(sections(rule)["Use instead"]), tmp_path)
    assert not report.examined
    assert len(report.not_judged) == 1


# Subjects that lack something


QUESTION, ANSWER = (
    {"role": "user", "content": "Is it open?"},
    {"role": "assistant", "content": "It is open."},
)
SUBJECTS: dict[str, list[Any]] = {
    "a single turn": [{"messages": [QUESTION, ANSWER]}],
    "no assistant": [{"messages": [QUESTION]}],
    "the assistant alone": [{"messages": [ANSWER]}],
    "text": [{"text": "It is open."}],
    "an empty text": [{"text": ""}],
    "prompt and completion": [{"prompt": "Open?", "completion": " It is."}],
    "chats and text": [{"messages": [QUESTION, ANSWER]}, {"messages": [ANSWER, ANSWER]}],
    "a pair": [{"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "No."}]}],
    "a pair of equals": [{"prompt": "Open?", "chosen": " It is.", "rejected": " It is."}],
    "a label": [{"prompt": [QUESTION], "completion": [ANSWER], "label": True}],
    "a row that no template takes": [{"messages": [{"role": "user", "content": {"a": 1}}, ANSWER]}],
    "tool calls": [
        {"messages": [QUESTION, {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}]}]}
    ],
}  # fmt: skip
WITHOUT: dict[str, dict[str, Any]] = {
    "all": {},
    "a template": {"chat_template.jinja": None, "tokenizer_config.json": {"chat_template": None}},
    "an embedding": {"config.json": None},
    "stop tokens": {
        "generation_config.json": None,
        "config.json": None,
        "tokenizer_config.json": {"eos_token": None},
    },
    "a pad": {"tokenizer_config.json": {"pad_token": None}},
}


def laid_out(folder: Path, rows: list[Any], edits: dict[str, Any]) -> DataReport:
    """Check rows with a tokenizer that lacks something."""
    tokenizer = folder / "tokenizer"
    shutil.copytree(TOKENIZER, tokenizer, ignore=shutil.ignore_patterns("special_tokens_map.json"))
    for name, edit in edits.items():
        data_blocks._edit(tokenizer / name, edit)
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return check(RunSpec(data=(str(path),), tokenizer=str(tokenizer)))


@pytest.mark.parametrize("without", WITHOUT)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_nothing_is_fine_that_was_not_there(subject: str, without: str, tmp_path: Path) -> None:
    report = laid_out(tmp_path, SUBJECTS[subject], WITHOUT[without])
    assert not report.requested_not_judged()
    for part in report.examined:
        assert part.figure, part.rule
        assert part.of != 0
    for lacking in report.not_judged:
        does_not_apply = lacking.reason.startswith(("it is about ", "it does no harm "))
        assert does_not_apply or lacking.unlock, (
            f"{lacking.what} names nothing that unlocks it: {lacking.reason}"
        )
    judged = {part.rule for part in report.examined}
    judged |= {finding.rule for finding in report.findings}
    judged |= {part.what for part in report.not_judged}
    assert {rule.name() for rule in all_rules(*DATA)} - judged <= evidence_rules(report), (
        "each rule is in one part"
    )


def evidence_rules(report: DataReport) -> set[str]:
    """Rules whose findings others explain."""
    return {
        line.rpartition("(")[2].rstrip(")")
        for finding in report.findings
        for line in finding.evidence
    }


def test_a_tokenizer_alone_is_judged_by_what_needs_no_rows() -> None:
    report = check(RunSpec(tokenizer=str(TOKENIZER)))
    names = {part.rule for part in report.examined}
    assert {
        "pad-is-stop-token",
        "pad-missing",
        "tokenizer-pads-on-the-left",
        "truncation-state-persisted",
    } <= names
    assert {part.unlock for part in report.not_judged if part.what == "duplicate-rows"} == {
        "name DATA as well"
    }


# Figures are true: counted once more from the files, by other means


def examined(report: DataReport) -> dict[str, Examined]:
    return {part.rule: part for part in report.examined}


def numbers(report: DataReport, rule: str) -> tuple[int | None, int | None]:
    part = examined(report)[rule]
    return part.count, part.of


def test_figures_of_chats_are_those_of_the_file() -> None:
    """The demo's chats: turns, roles, tokens and stop tokens, counted in the JSON and in plain encodings."""
    rows = [json.loads(line) for line in DEMO.read_text(encoding="utf-8").splitlines()]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(
        (TOKENIZER / "chat_template.jinja").read_text(encoding="utf-8")
    )
    backend = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    lengths = [len(backend.encode(template.render(**row)).ids) for row in rows]
    turns = sum(message["role"] == "assistant" for row in rows for message in row["messages"])
    report = check(RunSpec(data=(str(DEMO),), tokenizer=str(TOKENIZER), max_length=150))
    assert numbers(report, "answer-not-terminated") == (turns, turns)
    assert numbers(report, "empty-think-block-supervised") == (0, turns)
    assert numbers(report, "chat-template-not-prefix-stable") == (0, turns)
    assert numbers(report, "duplicate-rows") == (0, len(rows))
    assert numbers(report, "ids-beyond-embedding") == (0, sum(lengths))
    assert numbers(report, "truncation-leaves-no-label")[1] == len(rows)
    assert (
        f"({sum(length > 150 for length in lengths):,} are longer)"
        in examined(report)["truncation-leaves-no-label"].figure
    )
    bare = sum(row["messages"][0]["role"] != "system" for row in rows)
    assert examined(report)["default-system-prompt-injected"].figure.endswith(
        f"({bare:,} have none of their own)"
    )


def test_the_longest_example_is_that_of_the_file(tmp_path: Path) -> None:
    rows = [{"text": "word " * count + "<|im_end|>"} for count in (3, 40, 7)]
    backend = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    longest = max(len(backend.encode(row["text"]).ids) for row in rows)
    report = laid_out(tmp_path, rows, {})
    assert examined(report)["rows-longer-than-default-max-length"].figure.endswith(
        f"(the longest has {longest:,})"
    )
    assert numbers(report, "eos-not-appended-by-tokenizer") == (3, 3)


def real(path: str, family: str, **settings: Any) -> tuple[list[dict[str, Any]], DataReport]:
    """Rows of a published file, and the report on them."""
    file = parts.data(path)
    rows = json.loads(file.read_text(encoding="utf-8"))
    return rows, check(RunSpec(data=(str(file),), tokenizer=str(parts.folder(family)), **settings))


def test_figures_of_alpaca() -> None:
    rows, report = real("llamafactory/alpaca_en_demo.json", "qwen2.5-instruct")
    answers = [row["output"].strip() for row in rows]
    assert {"answer-equals-prompt-or-holds-markers", "answer-is-empty"} <= set(examined(report))
    assert numbers(report, "answer-is-empty") == (
        sum(not answer for answer in answers),
        len(rows),
    )
    most = Counter(answer[:200] for answer in answers).most_common(1)[0][1]
    assert numbers(report, "few-distinct-answers") == (most, len(rows))
    assert numbers(report, "answer-not-terminated") == (len(rows), len(rows))
    assert numbers(report, "malformed-rows") == (0, len(rows))
    contents = [
        (
            f"{row['instruction']}\n{row['input']}" if row["input"] else row["instruction"],
            row["output"],
        )
        for row in rows
    ]
    copies = [
        finding
        for finding in report.findings
        if finding.rule == "duplicate-rows" and "nearly" not in finding.message
    ]
    assert sum(finding.count or 0 for finding in copies) >= len(rows) - len(set(contents))


def test_figures_of_tool_calls() -> None:
    rows, report = real("llamafactory/glaive_toolcall_en_demo.json", "qwen3")
    calls = sum(turn["from"] == "function_call" for row in rows for turn in row["conversations"])
    assert numbers(report, "tool-arguments-double-encoded") == (0, calls)
    turns = sum(
        turn["from"] in ("gpt", "function_call") for row in rows for turn in row["conversations"]
    )
    assert numbers(report, "answer-not-terminated") == (turns, turns)
    assert report.examples == turns, (
        "the template makes an example of each turn, and a row's calls are counted once"
    )


def test_figures_of_pairs() -> None:
    rows, report = real("llamafactory/dpo_en_demo.json", "llama3-instruct")
    empty = sum(not row["rejected"]["value"].strip() for row in rows)
    assert numbers(report, "rejected-side-empty") == (empty, len(rows))
    assert numbers(report, "pair-prompt-not-shared") == (0, len(rows))
    longer, unlike = numbers(report, "preference-length-bias")
    assert longer is not None
    assert unlike is not None
    assert (longer, unlike) == lengths_of_pairs(rows)


def lengths_of_pairs(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Pairs whose chosen answer is longer, of those whose lengths differ by more than a tenth; in tokens, with the
    stop token."""
    backend = tokenizers.Tokenizer.from_file(
        str(parts.folder("llama3-instruct") / "tokenizer.json")
    )
    sides = [
        [
            len(backend.encode(row[side]["value"].strip(), add_special_tokens=False).ids) + 1
            for side in ("chosen", "rejected")
        ]
        for row in rows
    ]
    unlike = [(good, bad) for good, bad in sides if abs(good - bad) > 0.1 * max(good, bad)]
    return sum(good > bad for good, bad in unlike), len(unlike)


def test_figures_of_labels() -> None:
    rows, report = real("llamafactory/kto_en_demo.json", "llama3-instruct")
    good = sum(row["label"] is True for row in rows)
    found = [finding for finding in report.findings if finding.rule == "kto-imbalance"]
    of = [(finding.count, finding.total) for finding in found] or [numbers(report, "kto-imbalance")]
    assert of == [(good, len(rows))]
    assert numbers(report, "pairs-with-opposite-labels")[1] == len(rows), (
        "labels are compared, where there are no pairs"
    )


def test_leaks_are_counted_in_the_rows_of_the_evaluation_data(tmp_path: Path) -> None:
    rows = DEMO.read_text(encoding="utf-8").splitlines(keepends=True)
    train, held = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    train.write_text("".join(rows[:150]), encoding="utf-8")
    held.write_text("".join(rows[150:]), encoding="utf-8")
    report = check(RunSpec(data=(str(train),), eval_data=(str(held),), tokenizer=str(TOKENIZER)))
    part = examined(report)["train-eval-leak"]
    assert (
        part.figure == f"rows of the evaluation data in the training data: 0 of {len(rows) - 150}"
    )


# Wherever a verdict is shown


def test_the_figure_reaches_json_and_the_terminal() -> None:
    report = check(RunSpec(data=(str(DEMO),), tokenizer=str(TOKENIZER)))
    (part,) = (
        part for part in report_as_dict(report)["examined"] if part["rule"] == "no-supervised-token"
    )
    assert (part["figure"], part["count"], part["of"]) == (
        "rows without a supervised token: 0 of 200",
        0,
        200,
    )
    figure = "fine: no-supervised-token (LEN006): rows without a supervised token: 0 of 200"
    assert figure in report_as_text(report, verbose=True)
    assert figure not in report_as_text(report)


def test_figures_are_the_same_in_every_process() -> None:
    script = (
        "import sys, truetune\n"
        "report = truetune.check(data=sys.argv[1], tokenizer=sys.argv[2])\n"
        "print(report.examined, report.not_judged)\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script, str(DEMO), str(TOKENIZER)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert "0 of 200" in told.pop()


def test_data_rules_are_what_is_measured() -> None:
    assert all(issubclass(rule, DataRule) for rule in all_rules(*DATA))


def test_the_table_of_figures_is_that_of_today() -> None:
    assert verdicts_page.PAGE.read_text(encoding="utf-8") == verdicts_page.page(), (
        "run python -m tests.verdicts_page"
    )
