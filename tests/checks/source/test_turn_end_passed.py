"""Generation by a chat template that does not stop at the end of the turn, by the files of the model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
GEMMA = (
    "{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
)
ASK = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("merged")
model = AutoModelForCausalLM.from_pretrained("merged")
ids = tok.apply_chat_template([{"role": "user", "content": "a"}], add_generation_prompt=True, return_tensors="pt")
out = model.generate(ids, max_new_tokens=99, pad_token_id=tok.eos_token_id)
"""
VLLM = "from vllm import LLM\nllm = LLM(model='merged')\nllm.chat([{'role': 'user', 'content': 'a'}])\n"


def _count(
    folder: Path, script: str, template: str = CHATML, token: str = "<|im_end|>", **eos: Any
) -> int:
    """How often the rule speaks of a script beside a model whose files stop at these ids."""
    model = folder / "merged"
    model.mkdir()
    settings = {"chat_template": template, "added_tokens_decoder": {"7": {"content": token}}}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    (model / "config.json").write_text(json.dumps({"eos_token_id": eos.get("config", 1)}))
    if "generation" in eos:
        text = json.dumps({"eos_token_id": eos["generation"]})
        (model / "generation_config.json").write_text(text)
    path = folder / "ask.py"
    path.write_text(script)
    return len(lint([path], select=["generation-passes-the-turn-end"]).findings)


@pytest.mark.parametrize(
    ("script", "more"),
    [
        (ASK, {"generation": 1}),
        (ASK, {"generation": [1, 2]}),
        (ASK, {"config": 1}),
        (VLLM, {"generation": 1}),
        (ASK, {"template": GEMMA, "token": "<end_of_turn>", "generation": 1}),
        (
            "def main():\n    " + ASK.strip().replace("\n", "\n    ") + "\nmain()\n",
            {"generation": 1},
        ),
    ],
)
def test_the_turn_end_is_no_stop(script: str, more: dict[str, Any], tmp_path: Path) -> None:
    assert _count(tmp_path, script, **more) == 1


@pytest.mark.parametrize(
    ("script", "more"),
    [
        (ASK, {"generation": 7}),
        (ASK, {"generation": [1, 7]}),
        (ASK, {"config": 7}),
        (ASK.replace("max_new_tokens", "eos_token_id=[7, 1], max_new_tokens"), {"generation": 1}),
        (
            ASK.replace("out =", "model.generation_config.eos_token_id = 7\nout ="),
            {"generation": 1},
        ),
        (ASK.replace("max_new_tokens", "stop_strings=['x'], max_new_tokens"), {"generation": 1}),
        (ASK.replace("merged", "Qwen/Qwen2.5-7B"), {"generation": 1}),
        (ASK.replace("apply_chat_template", "encode"), {"generation": 1}),
        (ASK, {"template": "{{ messages }}{{ eos_token }}", "generation": 1}),
        (ASK, {"token": "<|other|>", "generation": 1}),
    ],
)
def test_other_stops_are_left_alone(script: str, more: dict[str, Any], tmp_path: Path) -> None:
    assert _count(tmp_path, script, **more) == 0


@pytest.mark.parametrize("number", ["²", "x", "-7"])
def test_an_added_token_without_a_number_is_passed_over(number: str, tmp_path: Path) -> None:
    model = tmp_path / "merged"
    model.mkdir()
    settings = {
        "chat_template": CHATML,
        "added_tokens_decoder": {number: {"content": "<|im_end|>"}},
    }
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    (model / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    path = tmp_path / "ask.py"
    path.write_text(ASK)
    report = lint([path], select=["generation-passes-the-turn-end"])
    assert not report.findings
    assert not report.not_judged


def test_a_model_name_that_is_no_path_is_passed_over(tmp_path: Path) -> None:
    assert _count(tmp_path, ASK.replace("merged", "m" * 5_000), generation=1) == 0


SERVE = "vllm serve ./merged --port 8000\n"


def _count_of_server(
    folder: Path, files: dict[str, str], name: str = "merged", **model: Any
) -> int:
    """How often the rule speaks of commands beside a model of these settings."""
    settings = {
        "chat_template": CHATML,
        "added_tokens_decoder": {"7": {"content": "<|im_end|>"}},
        "eos_token": model.get("eos", "<|endoftext|>"),
    }
    (folder / name).mkdir()
    (folder / name / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / name / "config.json").write_text(json.dumps({"eos_token_id": model.get("stops", 1)}))
    for file, text in files.items():
        (folder / file).write_text(text)
    return len(lint([folder], select=["server-passes-the-turn-end"]).findings)


@pytest.mark.parametrize(
    ("files", "model"),
    [
        ({"serve.sh": SERVE}, {}),
        ({"serve.sh": "python -m sglang.launch_server --model-path merged --tp 2\n"}, {}),
        ({"serve.sh": "text-generation-launcher --model-id ./merged\n"}, {}),
        (
            {
                "docker-compose.yml": "services:\n  llm:\n    image: vllm/vllm-openai:v0.8.5\n"
                "    command: --model /m\n    volumes: ['./merged:/m']\n"
            },
            {},
        ),
        ({"serve.sh": SERVE.replace("merged", "qwen2.5-support")}, {"name": "qwen2.5-support"}),
    ],
)
def test_a_server_passes_the_turn_end(
    files: dict[str, str], model: dict[str, Any], tmp_path: Path
) -> None:
    assert _count_of_server(tmp_path, files, **model) == 1


@pytest.mark.parametrize(
    ("files", "model"),
    [
        ({"serve.sh": SERVE}, {"stops": [1, 7]}),
        ({"serve.sh": SERVE}, {"eos": "<|im_end|>"}),
        ({"serve.sh": SERVE + "vllm serve merged --chat-template own.jinja\n"}, {"stops": 7}),
        ({"serve.sh": SERVE.replace("--port", "--chat-template t.jinja --port")}, {}),
        ({"serve.sh": SERVE, "ask.py": "ask(messages, stop_token_ids=[7])\n"}, {}),
        ({"serve.sh": SERVE, "ask.sh": 'curl -d \'{"stop": ["<|im_end|>"]}\' h/v1\n'}, {}),
        ({"serve.sh": SERVE.replace("merged", "Qwen2.5-1.5B")}, {"name": "Qwen2.5-1.5B"}),
    ],
)
def test_a_server_that_stops_somehow(
    files: dict[str, str], model: dict[str, Any], tmp_path: Path
) -> None:
    assert _count_of_server(tmp_path, files, **model) == 0


LLAMA = """
from dataclasses import asdict, dataclass
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

@dataclass
class Decoding:
    max_new_tokens: int = 512
    eos_token_id: int = %s

tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
model = AutoModelForCausalLM.from_pretrained("./legal")
ids = tok.apply_chat_template([{"role": "user", "content": "a"}], add_generation_prompt=True, return_tensors="pt")
"""
BY_DATACLASS = (
    LLAMA + "model.generate(ids, generation_config=GenerationConfig(**asdict(Decoding())))\n"
)
BY_OPTION = LLAMA % 1 + "OPTIONS = {'eos_token_id': %s}\nmodel.generate(ids, **OPTIONS)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BY_DATACLASS % 128001, 1),
        (BY_OPTION % "[128001]", 1),
        (BY_OPTION % "tok.convert_tokens_to_ids('<|end_of_text|>')", 1),
        (BY_DATACLASS % 128009, 0),
        (BY_OPTION % "[128001, 128009]", 0),
        (BY_OPTION % "tok.eos_token_id", 0),
        (BY_OPTION % "tok.convert_tokens_to_ids('<|eot_id|>')", 0),
        (BY_OPTION.replace("Instruct", "Legal") % 128001, 0),
        (BY_OPTION.replace("**OPTIONS", "**OPTIONS, stop_strings=['User:']") % 128001, 0),
    ],
)
def test_a_stop_of_ones_own_ends_texts_alone(text: str, expected: int, tmp_path: Path) -> None:
    path = tmp_path / "ask.py"
    path.write_text(text)
    assert len(lint([path], select=["generation-passes-the-turn-end"]).findings) == expected
