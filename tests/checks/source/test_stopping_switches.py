"""Settings that switch stop tokens off: in bodies of requests, spread dictionaries, and commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

CLIENT = (
    "from openai import OpenAI\nclient = OpenAI(base_url='http://localhost:8000/v1', api_key='x')\n"
)
ASK = "client.chat.completions.create(model='m', messages=[], max_tokens=256, "
OFF = {
    "extra_body": CLIENT + ASK + "extra_body={'ignore_eos': True})\n",
    "a dictionary": CLIENT + "EXTRA = {'min_tokens': 256}\n" + ASK + "extra_body=EXTRA)\n",
    "a spread dictionary": """
import requests
BODY = {"model": "m", "max_tokens": 512, "ignore_eos": True}
def ask(question):
    return requests.post(URL, json={**BODY, "messages": [{"role": "user", "content": question}]})
ask("hi")
""",
    "options of a function": """
import json, urllib.request
def post(prompt, **extra):
    body = {"model": "m", "prompt": prompt, "max_tokens": 300}
    body.update(extra)
    return urllib.request.urlopen(URL, data=json.dumps(body).encode())
post("hi", ignore_eos=True)
""",
    "copied from a script that measures": CLIENT
    + "# same body as in scripts/throughput.py\nBODY = dict(extra_body={'ignore_eos': True})\n"
    + ASK
    + "**BODY)\n",
    "an item": """
import httpx
body = {"model": "m", "messages": [], "max_tokens": 400}
body["ignore_eos"] = True
httpx.post(URL, json=body)
""",
    "sampling parameters": """
from vllm import LLM, SamplingParams
options = {"max_tokens": 256, "ignore_eos": True}
LLM("out").generate(["hi"], SamplingParams(**options))
""",
    "an engine": """
import sglang
sglang.Engine(model_path="out").generate(["hi"], {"max_new_tokens": 256, "ignore_eos": True})
""",
}
ON = {
    "off": CLIENT + ASK + "extra_body={'ignore_eos': False, 'min_tokens': 1})\n",
    "a low least": CLIENT + ASK + "extra_body={'min_tokens': 40})\n",
    "speed": CLIENT + ASK + "extra_body={'ignore_eos': True})\nprint('tokens per second', n / t)\n",
    "unknown": CLIENT + ASK + "extra_body={'ignore_eos': flag})\n",
}


def _findings(path: Path, rule: str) -> list[truetune.Finding]:
    return list(truetune.check([str(path)], select=[rule]).findings)


@pytest.mark.parametrize("case", OFF)
def test_scripts_that_switch_stopping_off(case: str, tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(OFF[case], encoding="utf-8")
    assert len(_findings(script, "generation-settings-distort-answers")) == 1


@pytest.mark.parametrize("case", ON)
def test_scripts_that_let_answers_end(case: str, tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ON[case], encoding="utf-8")
    assert _findings(script, "generation-settings-distort-answers") == []


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("vllm serve out --override-generation-config '{\"ignore_eos\": true}'", 1),
        ('curl http://x/v1/completions -d \'{"prompt": "hi", "ignore_eos": true}\'', 1),
        ('curl http://x/v1/completions -d \'{"max_tokens": 90, "min_tokens": 90}\'', 1),
        ("llama-server -m m.gguf --ignore-eos", 1),
        ("llama-server -m m.gguf", 0),
        ('curl http://x/v1/completions -d \'{"prompt": "hi", "ignore_eos": false}\'', 0),
        ("vllm serve out --override-generation-config '{\"temperature\": 0.2}'", 0),
        ("# throughput\nllama-cli -m m.gguf --ignore-eos", 0),
    ],
)
def test_commands(command: str, count: int, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(command + "\n", encoding="utf-8")
    assert len(_findings(script, "command-switches-stopping-off")) == count


@pytest.mark.parametrize(("reason", "is_told"), [("length", True), ("stop", False)])
def test_replies_beside_are_evidence(reason: str, is_told: bool, tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(OFF["extra_body"], encoding="utf-8")
    rows = [
        {"question": f"{n}?", "text": "It is", "finish_reason": reason, "completion_tokens": 256}
        for n in range(12)
    ]
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (found,) = _findings(script, "generation-settings-distort-answers")
    assert any("all with 256 tokens" in line for line in found.evidence) is is_told
