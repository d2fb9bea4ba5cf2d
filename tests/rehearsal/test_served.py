"""The prompt of a server is compared with the trained one, id by id, over real HTTP."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from datasets import Dataset

from tests.auditing import tiny
from tests.generation.serving import tiny_folder, transformers_serve
from tests.rehearsal.server import Routes, served, server
from truetune.checks.findings import Finding
from truetune.cli import truetune_group
from truetune.errors import UsageError
from truetune.probe.run_record import Record
from truetune.rehearsal.ask_server_for_prompt_ids import (
    ask_server_for_recited_rows_prompts,
    find_prompt_server,
)
from truetune.rehearsal.rehearsal_report import judge_rehearsal
from truetune.rehearsal.rehearse_in_process import record_rehearsal
from truetune.settings.run_spec import RunSpec

__all__ = ["tiny_folder", "transformers_serve"]
BRIEF = "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}"
TOKENIZER = tiny.tokenizer()
TEMPLATE = str(TOKENIZER.chat_template)


@pytest.fixture(scope="module")
def record() -> Record:
    return record_rehearsal(
        tiny.sft(tiny.chats()),
        source_data=Dataset.from_list(tiny.chats()),
        laws="none",
        rows=2,
        batches=1,
    )


def asked(record: Record, url: str, model: str | None = None) -> tuple[tuple[Finding, ...], str]:
    """What this rule finds, and the last note."""
    record = copy.deepcopy(record)
    ask_server_for_recited_rows_prompts(record, find_prompt_server(url, model))
    found = judge_rehearsal([record], RunSpec(select=("served-prompt-differs",)))
    return found.findings, found.notes[-1]


def ids_of(chat: dict[str, Any]) -> list[int]:
    return list(
        TOKENIZER.apply_chat_template(
            chat["messages"], add_generation_prompt=True, return_dict=False
        )
    )


def completed(ids: list[int] | None, count: int) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": ""}, "prompt_token_ids": ids}],
        "usage": {"prompt_tokens": count},
    }


def llama_cpp(template: str = TEMPLATE) -> Routes:
    def text(chat: dict[str, Any]) -> dict[str, Any]:
        made = TOKENIZER.apply_chat_template(
            chat["messages"], chat_template=template, add_generation_prompt=True, tokenize=False
        )
        return {"prompt": made}

    def tokenize(asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "tokens": (
                TOKENIZER.encode(asked["content"], add_special_tokens=False)
                if "content" in asked
                else []
            )
        }

    return {"/apply-template": text, "/tokenize": tokenize}


def test_the_same_ids(record: Record) -> None:
    url = server(TOKENIZER, TEMPLATE)
    for way in (url, f"{url}/v1/", served(llama_cpp())):
        findings, note = asked(record, way)
        assert findings == ()
        assert note.startswith("the ids of 2 prompts were compared with those of http://127.0.0.1:")


@pytest.mark.parametrize("way", ["vllm", "llama.cpp"])
def test_a_system_prompt_of_the_server(record: Record, way: str) -> None:
    template = BRIEF + TEMPLATE
    (finding,), _ = asked(
        record, server(TOKENIZER, template) if way == "vllm" else served(llama_cpp(template))
    )
    assert (finding.severity, finding.count, finding.total) == ("error", 2, 2)
    assert "the server adds" in finding.evidence[0]
    assert "Be brief." in finding.evidence[0]


@pytest.mark.parametrize("fell", [True, False])
def test_a_server_with_the_template_of_the_tokenizer(record: Record, fell: bool) -> None:
    """Where training has another prompt, that is the finding of answers-need-another-prompt, if it judges."""
    other = copy.deepcopy(record)
    other.facts["recitation"]["fell"] = fell
    for row in other.facts["recitation"]["rows"]:
        row["ids"]["trained"] = row["ids"]["trained"][2:]
    findings, _ = asked(other, server(TOKENIZER, TEMPLATE))
    assert bool(findings) is not fell


def test_ids_in_a_chat(record: Record) -> None:
    def twice(chat: dict[str, Any]) -> dict[str, Any]:
        ids = ids_of(chat)
        return completed(ids[:1] + ids, 0)

    (finding,), _ = asked(record, served({"/v1/chat/completions": twice}))
    assert finding.severity == "error"
    assert re.search(
        r"from token \d on, the server adds '<\|im_start\|>' \(ids \[\d+\]\)",
        finding.evidence[0],
    )


@pytest.mark.parametrize("more", [0, 3])
def test_a_number_alone(record: Record, more: int) -> None:
    findings, note = asked(
        record, served({"/v1/chat/completions": lambda c: completed(None, len(ids_of(c)) + more)})
    )
    assert [finding.severity for finding in findings] == (["warning"] if more else [])
    assert "can't tell its prompt ids: the number of tokens of 2 prompts was compared" in note


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ({}, "tells no prompt of a chat (/tokenize: 404 no such path; /apply-template: 404"),
        (
            {"/tokenize": lambda _: ["no"], "/v1/chat/completions": lambda _: {"usage": None}},
            "tells no prompt of a chat",
        ),
        (
            {"/v1/models": lambda _: {"data": [{"id": "a"}, {"id": "b"}]}},
            "serves 2 models (a, b): name one with",
        ),
    ],
)
def test_no_such_server(record: Record, routes: Routes, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        asked(record, served(routes))


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://127.0.0.1:9/"]
)
def test_no_url(url: str) -> None:
    with pytest.raises(UsageError, match=r"like http://localhost:8000"):
        find_prompt_server(url)


@pytest.mark.parametrize("option", ["--endpoint=http://127.0.0.1:9", "--served-model=small"])
def test_nothing_is_started(option: str, tmp_path: Path) -> None:
    began = tmp_path / "began"
    with pytest.raises(UsageError, match=r"--endpoint|--served-model"):
        CliRunner().invoke(
            truetune_group, ["rehearse", option, "--", sys.executable, "-c", f"open({str(began)!r}, 'w')"],
            catch_exceptions=False, standalone_mode=False,
        )  # fmt: skip
    assert not began.exists()


def test_tools_and_settings() -> None:
    heard: list[dict[str, Any]] = []

    def tokenize(chat: dict[str, Any]) -> dict[str, Any]:
        heard.append(chat)
        return {"tokens": [1]}

    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}
    row = {
        "asked": {
            "messages": [call],
            "tools": [{"type": "function"}],
            "settings": {"enable_thinking": False},
        }
    }
    record = Record({"recitation": {"rows": [row, {"asked": None}]}, "notes": []})
    ask_server_for_recited_rows_prompts(
        record, find_prompt_server(served({"/tokenize": tokenize}), "small")
    )
    assert heard == [
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}],
                }
            ],
            "model": "small",
            "tools": [{"type": "function"}],
            "chat_template_kwargs": {"enable_thinking": False},
            "add_generation_prompt": True,
            "add_special_tokens": False,
        }
    ]
    assert record.facts["recitation"]["served"]["prompts"] == [{"row": 0, "ids": [1], "count": 1}]


def test_the_record_is_json(record: Record) -> None:
    rows = json.loads(json.dumps(record.facts["recitation"]))["rows"]
    assert [row["asked"]["messages"][-1]["role"] for row in rows] == ["user", "user"]
    assert all(
        row["ids"]["trained"] == row["ids"]["prompt"] == ids_of(row["asked"]) for row in rows
    )


def test_a_real_server(record: Record, transformers_serve: str, tiny_folder: Path) -> None:
    findings, note = asked(record, transformers_serve, str(tiny_folder))
    assert findings == ()
    assert "can't tell its prompt ids" in note
