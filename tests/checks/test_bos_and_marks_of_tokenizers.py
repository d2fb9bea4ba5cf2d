"""BOS that is left out, and marks that decoding leaves out, on published tokenizers whose files are edited."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests import parts

QUESTION = {"role": "user", "content": "When does it open?"}


def _folder(name: str, to: Path, edit: Any) -> Path:
    """A copy of a published tokenizer whose tokenizer.json is edited."""
    source = parts.folder(name)
    shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    path = to / name / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return to / name


def _findings(folder: Path, rows: list[dict[str, Any]], tokenizer: Path, code: str) -> list[Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = truetune.check(path, tokenizer=str(tokenizer))
    return [one for one in report.findings if one.code == code]


def _texts() -> list[dict[str, Any]]:
    return [{"text": f"Shop {n} opens at nine, and closes at five."} for n in range(10)]


def _chats(answer: str) -> list[dict[str, Any]]:
    return [
        {"messages": [QUESTION, {"role": "assistant", "content": f"{answer} Shop {n} is open."}]}
        for n in range(10)
    ]


def _drop_post_processor(content: dict[str, Any]) -> None:
    content["post_processor"] = None


def _keep(content: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize(("name", "severity"), [("gemma2", "warning"), ("llama3.1-base", "info")])
def test_texts_without_bos(name: str, severity: str, tmp_path: Path) -> None:
    tokenizer = _folder(name, tmp_path, _drop_post_processor)
    (found,) = _findings(tmp_path, _texts(), tokenizer, "LEN009")
    assert (found.severity, found.count) == (severity, 10)


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "llama3.1-base", "mistral-7b-v0.3"])
def test_published_tokenizers_begin_with_bos(name: str, tmp_path: Path) -> None:
    tokenizer = parts.folder(name)
    assert not _findings(tmp_path, _texts(), tokenizer, "LEN009")
    if "base" not in name:
        assert not _findings(tmp_path, _chats("Yes."), tokenizer, "LEN009")


CHATML = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_template_without_bos_is_to_write_it(tmp_path: Path) -> None:
    tokenizer = _folder("llama3.1-instruct", tmp_path, _keep)
    for file in tokenizer.glob("*.jinja"):
        file.unlink()
    config = tokenizer / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**settings, "chat_template": CHATML}), encoding="utf-8")
    (found,) = _findings(tmp_path, _chats("Yes."), tokenizer, "LEN009")
    assert (found.severity, found.count) == ("info", 10)
    assert "write {{ bos_token }} at the beginning of the chat template" in found.remedy


@pytest.mark.parametrize("name", ["qwen2.5-base", "smollm2", "gpt2"])
def test_families_without_bos_are_left_alone(name: str, tmp_path: Path) -> None:
    assert not _findings(tmp_path, _texts(), parts.folder(name), "LEN009")


def _make_special(*names: str) -> Any:
    """An edit that flags the marks of these names as special."""

    def edit(content: dict[str, Any]) -> None:
        for token in content["added_tokens"]:
            if token["content"].strip("</>") in names:
                token["special"] = True

    return edit


def test_marks_of_reasoning_that_are_special(tmp_path: Path) -> None:
    tokenizer = _folder("qwen3", tmp_path, _make_special("think"))
    (tokenizer / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    rows = [{"text": f"<think>Noon.</think>Shop {n} is open.<|im_end|>"} for n in range(10)]
    (found,) = _findings(tmp_path, rows, tokenizer, "TOK016")
    assert (found.severity, found.count) == ("warning", 10)


@pytest.mark.parametrize("name", ["qwen3", "mistral-7b-v0.3", "llama3.1-instruct", "gpt-oss"])
def test_published_marks_are_left_alone(name: str, tmp_path: Path) -> None:
    rows = _chats("<think>Noon.</think>")
    assert not _findings(tmp_path, rows, parts.folder(name), "TOK016")


def test_marks_that_no_answer_holds(tmp_path: Path) -> None:
    tokenizer = _folder("qwen3", tmp_path, _make_special("tool_response"))
    rows = [{"text": f"Shop {n} is open.<|im_end|>"} for n in range(10)]
    assert not _findings(tmp_path, rows, tokenizer, "TOK016")


@pytest.mark.parametrize(
    ("name", "mark"), [("qwen2.5-instruct", "tool_call"), ("qwen3", "think"), ("qwen3.5", "think")]
)
def test_flags_are_compared_with_the_published_ones_without_rows(
    name: str, mark: str, tmp_path: Path
) -> None:
    tokenizer = _folder(name, tmp_path, _make_special(mark))
    (tokenizer / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (found,) = truetune.check(tokenizer=str(tokenizer), select="TOK016").findings
    assert (found.severity, found.count) == ("warning", 2)
    assert f"<{mark}>" in found.message
    assert not truetune.check(tokenizer=str(parts.folder(name)), select="TOK016").findings


def test_two_stop_tokens_that_the_template_itself_writes_are_no_fault(tmp_path: Path) -> None:
    """Phi-3 ends turns with <|end|>, and a chat with <|endoftext|> behind it."""
    chat = [{"role": "user", "content": "Is it open?"}, {"role": "assistant", "content": "It is."}]
    twice = [*chat[:1], {"role": "assistant", "content": "It is.<|end|>"}]
    path = tmp_path / "rows.jsonl"
    for messages, is_fault in ((chat, False), (twice, True)):
        path.write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
        report = truetune.check(data=path, tokenizer=parts.folder("phi3"), select=("LEN002",))
        assert bool(report.findings) is is_fault, messages
