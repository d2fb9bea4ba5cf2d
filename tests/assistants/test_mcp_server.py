"""The server, asked by the SDK's own client over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from truetune.demo import BROKEN, TOKENIZER

mcp = pytest.importorskip("mcp", reason="needs the extra truetune[mcp]")

TOOLS = ["check", "lint", "diagnose", "troubleshoot", "explain", "fix"]
SCRIPT = """from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.pad_token = tokenizer.eos_token
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
Trainer(model="m", data_collator=collator).train()
"""
RULE = "pad-equals-eos-lm-collator"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


async def call_all(
    folder: Path, calls: list[tuple[str, Mapping[str, Any]]]
) -> tuple[list[str], list[tuple[bool, str]]]:
    """The names of the tools; and of each call whether it failed, and its text."""
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "truetune", "mcp"], env=dict(os.environ), cwd=folder
    )
    async with mcp.Client(server) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        results = [await client.call_tool(name, dict(arguments)) for name, arguments in calls]
    return listed, [(bool(one.is_error), one.content[0].text) for one in results]


def test_a_client_finds_and_fixes_a_fault(tmp_path: Path) -> None:
    """One server for all calls, since it takes seconds to start one."""
    (tmp_path / "train.py").write_text(SCRIPT)
    listed, answers = asyncio.run(
        call_all(
            tmp_path,
            [
                ("lint", {"paths": "train.py"}),
                ("explain", {"question": RULE}),
                ("fix", {"path": "train.py"}),
                ("check", {"paths": ["nowhere.jsonl"]}),
                ("fix", {"path": "train.py", "write": True}),
                ("troubleshoot", {"symptom": "it never stops", "paths": ["train.py"]}),
                ("diagnose", {"path": "train.py"}),
                ("check", {"paths": [str(BROKEN)], "tokenizer": str(TOKENIZER)}),
            ],
        )
    )
    assert listed == TOOLS
    lint, explain, diff, missing, written, after, no_log, rows = answers
    (finding,) = json.loads(lint[1])["findings"]
    assert (finding["rule"], finding["place"]) == (RULE, "train.py:4:1")
    assert json.loads(explain[1])["name"] == RULE
    assert "-tokenizer.pad_token = tokenizer.eos_token" in json.loads(diff[1])["diff"]
    assert json.loads(diff[1])["written"] == []
    assert missing[0]
    assert missing[1].endswith("nowhere.jsonl: no such file or folder")
    assert json.loads(written[1])["written"] == ["train.py"]
    assert RULE not in [one["rule"] for one in json.loads(after[1])["findings"]]
    assert no_log[0]
    assert len(no_log[1].splitlines()) == 1
    assert json.loads(rows[1])["exit_code"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_stdout_carries_the_protocol_alone(tmp_path: Path) -> None:
    """Every line is a JSON-RPC message, and the server ends when its input does."""
    done = subprocess.run(
        [sys.executable, "-m", "truetune", "mcp"],
        input=json.dumps(INITIALIZE) + "\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["jsonrpc"] for line in lines] == ["2.0"]
    assert lines[0]["result"]["serverInfo"]["name"] == "truetune"
    assert done.returncode == 0
