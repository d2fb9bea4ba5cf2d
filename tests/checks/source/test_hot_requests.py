"""High temperatures in requests: found in bodies, options and clients, silent where other settings cut the tail."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

CLIENT = (
    "from openai import OpenAI\nclient = OpenAI(base_url='http://localhost:8000/v1', api_key='x')\n"
)
ASK = "client.chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'hi'}], "
HOT = {
    "a chat": CLIENT + ASK + "temperature=2.0, top_p=1.0)\n",
    "in a function": CLIENT + "def ask(q):\n    return " + ASK + "temperature=1.8)\n",
    "a completion": CLIENT + "client.completions.create(model='m', prompt='hi', temperature=1.6)\n",
    "settings": CLIENT + "SETTINGS = dict(temperature=2, max_tokens=9)\n" + ASK + "**SETTINGS)\n",
    "a body": """
import requests
def ask(q):
    body = {"inputs": q, "parameters": {"temperature": 1.9, "max_new_tokens": 100}}
    return requests.post("http://localhost:8080/generate", json=body).json()
""",
    "ollama": """
import ollama
ollama.chat(model="m", messages=[{"role": "user", "content": "hi"}], options={"temperature": 1.7})
""",
    "litellm": """
import litellm
T = 2.0
litellm.completion(model="openai/m", messages=[{"role": "user", "content": "hi"}], temperature=T)
""",
    "langchain": """
from langchain_openai import ChatOpenAI
llm = ChatOpenAI(model="m", base_url="http://localhost:8000/v1", temperature=1.9)
print(llm.invoke("hi").content)
""",
    "llama.cpp": """
from llama_cpp import Llama
llm = Llama(model_path="m.gguf")
llm.create_chat_completion(messages=[{"role": "user", "content": "hi"}], temperature=1.5)
""",
}
SOUND = {
    "usual": CLIENT + ASK + "temperature=1.0)\n",
    "min_p": CLIENT + ASK + "temperature=2.0, extra_body={'min_p': 0.1})\n",
    "few tokens": CLIENT + ASK + "temperature=1.5, top_p=0.3)\n",
    "top_k": CLIENT + ASK + "temperature=1.5, extra_body={'top_k': 5})\n",
    "unknown": CLIENT + "import sys\n" + ASK + "temperature=float(sys.argv[1]))\n",
    "distillation": """
import torch
def loss(student, teacher, temperature=2.0):
    return torch.nn.functional.kl_div(student / temperature, teacher / temperature)
loss(a, b, temperature=4.0)
""",
    "of a loss": "make_loss(temperature=2.0, margin=1)\n",
}


def _found(text: str, folder: Path) -> list[str]:
    path = folder / "ask.py"
    path.write_text(text)
    return [
        finding.message
        for finding in lint([path], select=["generation-settings-distort-answers"]).findings
    ]


@pytest.mark.parametrize("name", HOT)
def test_hot_requests(name: str, tmp_path: Path) -> None:
    (message,) = _found(HOT[name], tmp_path)
    assert message.startswith("temperature is ")


@pytest.mark.parametrize("name", SOUND)
def test_sound_requests(name: str, tmp_path: Path) -> None:
    assert _found(SOUND[name], tmp_path) == []
