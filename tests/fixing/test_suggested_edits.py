"""What a check advises on rows that the template refuses, or prints as Python, was tried on them, and holds for all."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

import truetune
from tests.parts import folder
from truetune.checks.findings import Finding
from truetune.checks.template_refusal_cause import template_error_without_quoted_row_text
from truetune.cli import truetune_group
from truetune.data.conversation import Conversation, Origin

Turn = dict[str, Any]
ASK: Turn = {"role": "user", "content": "Is it open?"}
SAY: Turn = {"role": "assistant", "content": "It is open."}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "hours", "arguments": {"day": "Monday"}},
}
RESULT: Turn = {"role": "tool", "tool_call_id": "c1", "name": "hours", "content": "nine"}
NULL: list[Turn] = [ASK, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT, SAY]
PARTS: list[Turn] = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "Is it"}, {"type": "text", "text": " on?"}],
    },
    SAY,
]
IMAGE: list[Turn] = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
    SAY,
]
REFUSES, PRINTS = "template-rejects-rows", "values-printed-as-python"


def written(path: Path, rows: list[list[Turn]]) -> Path:
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows), encoding="utf-8")
    return path


def found(data: Path | list[Path], family: str, rule: str) -> Finding | None:
    report = truetune.check(data=data, tokenizer=folder(family), select=[rule])
    return next(iter(report.findings), None)


def followed(finding: Finding, where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the command of the remedy writes."""
    monkeypatch.chdir(where)
    words = shlex.split(finding.remedy.split("`")[1])
    assert truetune_group.main(
        [*words[1:], "--quiet"], prog_name="truetune", standalone_mode=False
    ) in (
        0,
        1,
    )
    return where / words[words.index("-o") + 1]


@pytest.mark.parametrize(
    ("family", "rule", "row", "edit"),
    [
        ("qwen3", REFUSES, NULL, 'messages[1].content: null -> ""'),
        ("qwen2.5-instruct", REFUSES, PARTS, '-> "Is it on?"'),
        ("mistral-nemo", REFUSES, PARTS, '-> "Is it on?"'),
        ("mistral-nemo", REFUSES, NULL, "messages[1].tool_calls[0].id"),
        (
            "gemma2",
            REFUSES,
            [{"role": "system", "content": "Be brief."}, ASK, SAY],
            '"Be brief.\\n\\nIs it open?"',
        ),
        ("gemma2", REFUSES, [ASK, ASK, SAY], '"Is it open?\\n\\nIs it open?"'),
        ("gemma3", REFUSES, [SAY, ASK, SAY], "messages[0]"),
        ("mistral-7b-v0.1", REFUSES, [SAY, ASK, ASK, SAY, SAY], '"Is it open?\\n\\nIs it open?"'),
        ("llama3.1-instruct", PRINTS, PARTS, '-> "Is it on?"'),
        ("gemma2", PRINTS, PARTS, '-> "Is it on?"'),
        ("deepseek-v4", PRINTS, PARTS, '-> "Is it on?"'),
        ("llama3-instruct", PRINTS, NULL, 'messages[1].content: null -> ""'),
    ],
)
def test_the_remedy_is_an_edit_that_helps(
    family: str,
    rule: str,
    row: list[Turn],
    edit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = written(tmp_path / "chats.jsonl", [row, [ASK, SAY]])
    finding = found(data, family, rule)
    assert finding is not None
    assert edit in finding.remedy
    fixed = followed(finding, tmp_path, monkeypatch)
    assert len(fixed.read_text().splitlines()) == 2
    assert found(fixed, family, rule) is None


@pytest.mark.parametrize("row", [IMAGE, [{"role": "user", "content": ["a", 1]}, SAY], [SAY]])
def test_nothing_is_advised_that_does_not_help(row: list[Turn], tmp_path: Path) -> None:
    finding = found(written(tmp_path / "chats.jsonl", [row, [ASK, SAY]]), "mistral-nemo", REFUSES)
    if finding is not None:
        assert "truetune fix" not in finding.remedy
        assert any("no mechanical edit helps" in line for line in finding.evidence)
    else:
        assert row == [SAY]


@pytest.mark.parametrize("family", ["smollm2", "deepseek-v3"])
def test_no_edit_is_advised_with_which_the_template_drops_the_call(
    family: str, tmp_path: Path
) -> None:
    """`content: ""` would make these templates take the row, and write an empty answer for the call."""
    finding = found(written(tmp_path / "chats.jsonl", [NULL, [ASK, SAY]]), family, REFUSES)
    assert finding is not None
    assert "truetune fix" not in finding.remedy


def test_rows_are_grouped_by_what_the_template_raises(tmp_path: Path) -> None:
    rows = [NULL, PARTS, [ASK, SAY], NULL, [*NULL, ASK, SAY], IMAGE]
    finding = found(written(tmp_path / "chats.jsonl", rows), "qwen3", REFUSES)
    assert finding is not None
    assert finding.count == 5
    assert [case.origin.row for case in finding.cases if case.origin] == [0, 1, 3, 4, 5]
    counts = [line.split(" row")[0] for line in finding.evidence if not line.startswith("tried")]
    assert sorted(counts) == ["1", "1", "3"] or sorted(counts) == ["2", "3"]
    assert sum(line.startswith("tried on") for line in finding.evidence) == len(counts)


@pytest.mark.parametrize(
    ("reasons", "causes"),
    [
        (("Unknown role: bot1", "Unknown role: bot2"), 1),
        (("turn 3 is a call", "turn 5 is a call"), 1),
        (("'dict object' has no attribute 'content'", "'list object' has no attribute 'strip'"), 2),
        (("roles must alternate user/assistant", "only user and assistant roles"), 2),
    ],
)
def test_a_cause_is_what_is_raised_without_what_it_quotes(
    reasons: tuple[str, str], causes: int
) -> None:
    made = set()
    for number, reason in enumerate(reasons, 1):
        messages = [
            {"role": f"bot{number}", "content": f"text {number}"},
            {"role": "user", "content": "user"},
        ]
        made.add(
            template_error_without_quoted_row_text(
                Conversation(Origin("a", 1, 0), "messages", messages), reason
            )
        )
    assert len(made) == causes


def test_a_table_that_has_no_room_for_the_edit_gets_no_command(tmp_path: Path) -> None:
    path = tmp_path / "chats.parquet"
    parquet.write_table(arrow.table({"messages": [PARTS[:1], PARTS[:1]]}), path)
    finding = found(path, "qwen2.5-instruct", REFUSES)
    assert finding is not None
    assert "truetune fix" not in finding.remedy


def test_the_command_names_file_and_settings(tmp_path: Path) -> None:
    first, second = (
        written(tmp_path / "a b.jsonl", [[ASK, SAY]]),
        written(tmp_path / "c d.jsonl", [NULL]),
    )
    finding = found([first, second], "qwen3", REFUSES)
    assert finding is not None
    words = shlex.split(finding.remedy.split("`")[1])
    assert words[:5] == ["truetune", "fix", str(second), "-o", "c d.fixed.jsonl"]
    assert words[words.index("-t") + 1] == str(folder("qwen3"))


@pytest.mark.parametrize(
    "family", ["llama3.1-instruct", "gemma2", "deepseek-v4", "llama3-instruct"]
)
@pytest.mark.parametrize(
    "value",
    [
        [{"type": "text", "text": "It's open."}],
        [{"type": "text", "text": 'He said "no".'}],
        [{"text": "no type"}],
        [{"type": "image"}, {"type": "text", "text": "a"}],
        [{"type": "text", "text": "a\nb"}],
        [{"type": "text", "text": "ü 好"}],
    ],
)
def test_a_content_that_is_printed_as_python_is_found(
    family: str, value: Any, tmp_path: Path
) -> None:
    data = written(tmp_path / "chats.jsonl", [[{"role": "user", "content": value}, SAY]])
    finding = found(data, family, PRINTS)
    assert finding is not None
    assert finding.severity == "error"
    assert finding.cases[0].turn == 0
    assert finding.cases[0].token is not None


@pytest.mark.parametrize("family", ["gemma3", "qwen3.5", "llama3.1-instruct", "gemma2"])
def test_text_that_merely_looks_like_python_is_none(family: str, tmp_path: Path) -> None:
    text = "print([{'type': 'text', 'text': 'x'}]), None, True"
    data = written(tmp_path / "chats.jsonl", [[{"role": "user", "content": text}, SAY]])
    assert found(data, family, PRINTS) is None


@pytest.mark.parametrize("family", ["gemma3", "qwen3.5"])
def test_a_template_that_takes_parts_is_fine(family: str, tmp_path: Path) -> None:
    assert found(written(tmp_path / "chats.jsonl", [PARTS]), family, PRINTS) is None


def test_arguments_that_are_printed_as_python_are_found(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls"
        " or [] %}{{ c.function.arguments }}{% endfor %}<|im_end|>\n{% endfor %}"
    )
    row = [ASK, {**NULL[1], "content": ""}, RESULT, SAY]
    data = written(tmp_path / "chats.jsonl", [row])
    report = truetune.check(
        data=data, tokenizer=folder("qwen3"), template=str(template), select=[PRINTS]
    )
    (finding,) = report.findings
    assert "{'day': 'Monday'}" in finding.cases[0].text
    assert finding.cases[0].turn == 1
    assert "messages[1].tool_calls[0].function.arguments" in finding.remedy
