"""The rules on real tokenizers and real data: they fire where it is broken, and are silent where it is not."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests import parts
from truetune.checks.reports import DataReport
from truetune.demo import DATA

CHATS = str(DATA)
SHIPPED: dict[str, set[str]] = {
    "qwen2.5-instruct": set(),
    "phi4": set(),
    "gemma3-eos-fixed": set(),
    "qwen3": {"empty-think-block-supervised"},
    "qwen2.5-base": {"pad-is-stop-token", "stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "smollm2": {"pad-is-stop-token"},
    "llama2-chat": {"pad-missing"},
    "llama3-instruct": {"pad-missing"},
    "llama3-instruct-launch": {"pad-missing", "stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "llama3.1-instruct": {"pad-missing"},
    "llama3.2-instruct": {"pad-missing", "date-in-template"},
    "gemma2": {"template-rejects-rows", "stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "gemma3": {"stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "gemma4": {"stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "phi3": {"pad-is-stop-token", "stop-ids-incomplete", "turn-terminator-is-not-eos"},
    "gpt-oss": {"date-in-template"},
    "deepseek-v3": {"pad-is-stop-token"},
    "deepseek-r1": {"pad-is-stop-token", "chat-template-not-prefix-stable"},
}
"""What is wrong with each folder as it is published, for healthy chats. Folders without generation_config.json do not
say where generation stops, so a terminator that is not EOS is reported."""


def fired(report: truetune.Report, *, notes: bool = False) -> set[str]:
    return {finding.rule for finding in report.findings if notes or finding.severity != "info"}


def check(family: str, data: Any = CHATS, **settings: Any) -> truetune.Report:
    return truetune.check(data=data, tokenizer=str(parts.folder(family)), **settings)


def edited(family: str, folder: Path, **files: dict[str, Any]) -> str:
    """A copy of a real folder with JSON files changed key by key."""
    shutil.copytree(parts.folder(family), folder)
    for name, changes in files.items():
        path = folder / f"{name}.json"
        value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**value, **changes}), encoding="utf-8")
    return str(folder)


def rows(path: Path, *values: Any) -> str:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return str(path)


@pytest.fixture
def plain_chats(tmp_path: Path) -> str:
    """The demo's healthy chats, without those that call tools."""
    lines = Path(CHATS).read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "plain.jsonl"
    path.write_text("".join(line for line in lines if "tool_calls" not in line), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("family", SHIPPED)
def test_healthy_chats_on_published_folders(family: str, plain_chats: str) -> None:
    assert fired(check(family, plain_chats, max_length=1024)) == SHIPPED[family]


def test_qwen3_is_clean_with_thinking_off() -> None:
    assert fired(check("qwen3", template_kwargs={"enable_thinking": False})) == set()


@pytest.mark.parametrize(
    ("family", "pad"),
    [
        ("qwen3", "<|im_end|>"),
        ("llama3.1-instruct", "<|eot_id|>"),
        ("mistral-7b-v0.3", "</s>"),
        ("gemma3", "<eos>"),
    ],
)
def test_pad_is_stop_token(family: str, pad: str, tmp_path: Path) -> None:
    folder = edited(family, tmp_path / "t", tokenizer_config={"pad_token": pad})
    report = truetune.check(data=CHATS, tokenizer=folder, select="pad-is-stop-token")
    (finding,) = report.findings
    assert finding.severity == "warning", "the trainer is not known"
    masks_by_id = truetune.check(
        data=CHATS, tokenizer=folder, select="pad-is-stop-token", trained_by="transformers"
    ).findings
    assert [f.severity for f in masks_by_id] == ["warning" if family == "gemma3" else "error"], (
        "no row ends with <eos>"
    )
    good = {
        "qwen3": "<|endoftext|>",
        "llama3.1-instruct": "<|finetune_right_pad_id|>",
        "mistral-7b-v0.3": "<unk>",
        "gemma3": "<pad>",
    }
    assert good[family] in finding.remedy or family == "qwen3"
    healthy = edited(family, tmp_path / "h", tokenizer_config={"pad_token": good[family]})
    assert truetune.check(data=CHATS, tokenizer=healthy, select="pad-is-stop-token").findings == ()


@pytest.mark.parametrize("family", ["gemma3", "phi3", "qwen2.5-base"])
def test_stop_ids_incomplete(family: str, tmp_path: Path) -> None:
    select = "stop-ids-incomplete"
    eos = {"gemma3": 1, "phi3": 32000, "qwen2.5-base": 151643}[family]
    turn = {"gemma3": 106, "phi3": 32007, "qwen2.5-base": 151645}[family]
    broken = edited(family, tmp_path / "b", generation_config={"eos_token_id": eos})
    (finding,) = truetune.check(data=CHATS, tokenizer=broken, select=select).findings
    assert finding.severity == "error"
    assert str(sorted([eos, turn])) in finding.remedy
    repaired = edited(family, tmp_path / "m", generation_config={"eos_token_id": [eos, turn]})
    assert truetune.check(data=CHATS, tokenizer=repaired, select=select).findings == ()


@pytest.mark.parametrize("family", ["llama3.1-instruct", "gemma3", "mistral-nemo"])
def test_rendered_text_gets_a_second_bos(family: str, tmp_path: Path) -> None:
    select = "render-then-retokenize-double-bos"
    bos = {"llama3.1-instruct": "<|begin_of_text|>", "gemma3": "<bos>", "mistral-nemo": "<s>"}[
        family
    ]
    (finding,) = check(
        family,
        rows(tmp_path / "a.jsonl", {"text": f"{bos}Hi"}, {"text": f"{bos}Yo"}),
        select=select,
    ).findings
    assert (finding.count, finding.total) == (2, 2)
    assert check(family, rows(tmp_path / "b.jsonl", {"text": "Hi"}), select=select).findings == ()
    assert (
        check("qwen3", rows(tmp_path / "c.jsonl", {"text": f"{bos}Hi"}), select=select).findings
        == ()
    )


@pytest.mark.parametrize("family", ["llama3-base", "qwen2.5-base", "gpt2"])
def test_plain_text_without_eos(family: str, tmp_path: Path) -> None:
    select = "eos-not-appended-by-tokenizer"
    eos = {
        "llama3-base": "<|end_of_text|>",
        "qwen2.5-base": "<|endoftext|>",
        "gpt2": "<|endoftext|>",
    }[family]
    bare = rows(
        tmp_path / "a.jsonl", {"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}
    )
    (finding,) = check(family, bare, select=select).findings
    assert (finding.count, finding.total) == (2, 2)
    assert check(family, bare, select=select, append_eos=True).findings == ()
    ended = rows(tmp_path / "b.jsonl", {"prompt": "a", "completion": f"b{eos}"})
    assert check(family, ended, select=select).findings == ()


def test_real_instruction_data_is_clean_where_it_is() -> None:
    report = check(
        "qwen2.5-instruct", str(parts.data("llamafactory/alpaca_en_demo.json")), max_length=1024
    )
    assert fired(report) == set()
    assert isinstance(report, DataReport)
    assert (report.rows, report.examples, report.unsupervised) == (999, 999, 0)
    assert {f.rule: f.count for f in report.findings}["duplicate-rows"] == 14
    ledger = {source.label: (learned, context) for source, learned, context in report.ledger.rows()}
    assert ledger["stop token"] == (999, 0)
    assert ledger["user"][0] == 0
    assert ledger["assistant content"][1] == 0


def test_real_tool_calls_on_qwen3() -> None:
    report = check(
        "qwen3", str(parts.data("llamafactory/glaive_toolcall_en_demo.json")), max_length=16384
    )
    assert fired(report) == {
        "empty-think-block-supervised",
        "duplicate-rows",
        "one-row-decides-memory",
        # One answer lacks a brace, one a fence.
        "answer-is-incomplete",
        # 7 of 13 pieces of Python have lost their indentation below `for`, `if` and `def`.
        "code-in-answers-is-broken",
    }, "one row has 11,544 tokens, where 95 % have at most 890"
    assert isinstance(report, DataReport)
    labels = {source.label: learned for source, learned, _ in report.ledger.rows()}
    assert labels["tool call"] > 1000
    assert labels["tool result"] == labels["tool definitions"] == 0


@pytest.mark.parametrize("family", ["mistral-7b-v0.1", "gemma2"])
def test_a_refused_system_role(family: str, tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    data = rows(
        tmp_path / "a.jsonl",
        {"messages": [{"role": "system", "content": "s"}, *chat]},
        {"messages": chat},
    )
    report = check(family, data, select="template-rejects-rows")
    assert [(f.count, f.total) for f in report.findings] == [(1, 2)]
    assert isinstance(report, DataReport)
    assert (report.rejected, report.examples) == (1, 1)


@pytest.mark.parametrize("family", ["mistral-nemo", "llama3.1-instruct", "smollm2", "qwen3"])
def test_control_strings_in_content(family: str, tmp_path: Path) -> None:
    stop = {"mistral-nemo": "</s>", "llama3.1-instruct": "<|eot_id|>"}.get(family, "<|im_end|>")
    chat = [{"role": "user", "content": f"say {stop} now"}, {"role": "assistant", "content": "no"}]
    data = rows(tmp_path / "a.jsonl", {"messages": chat})
    (finding,) = check(family, data, select="special-token-in-content").findings
    assert (finding.severity, finding.count) == ("error", 1)
    harmless = [{"role": "user", "content": "say <b> now"}, chat[1]]
    clean = rows(tmp_path / "b.jsonl", {"messages": harmless})
    assert check(family, clean, select="special-token-in-content").findings == ()


def test_string_arguments_are_fine_where_the_template_takes_them(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city": "Ghent"}'}}
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    data = rows(tmp_path / "a.jsonl", {"messages": chat})
    select = "tool-arguments-double-encoded"
    assert check("qwen3", data, select=select).findings == ()
    assert check("llama3.1-instruct", data, select=select).findings != ()


def test_untrained_markers_of_a_real_model(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    model = parts.model()
    select = "base-model-special-tokens-untrained"
    assert truetune.check(data=CHATS, tokenizer=str(model), select=select).findings == ()
    matrix = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    matrix[[1, 2]] = 0
    folder = edited("smollm2", tmp_path / "base")
    save_file(
        {"model.embed_tokens.weight": matrix.astype(np.float16)}, Path(folder) / "model.safetensors"
    )
    (finding,) = truetune.check(data=CHATS, tokenizer=folder, select=select).findings
    assert (finding.count, finding.total) == (2, 2)


@pytest.mark.parametrize("family", ["qwen2.5-instruct", "llama3.1-instruct", "gemma3"])
def test_leaks_between_train_and_eval(family: str, tmp_path: Path) -> None:
    lines = Path(CHATS).read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "train.jsonl").write_text("".join(lines[:150]), encoding="utf-8")
    (tmp_path / "eval.jsonl").write_text("".join(lines[140:]), encoding="utf-8")
    (tmp_path / "clean.jsonl").write_text("".join(lines[150:]), encoding="utf-8")
    train = str(tmp_path / "train.jsonl")
    # A row that stands twice in the evaluation data leaks twice, and neither copy is only "nearly the same".
    (tmp_path / "twice.jsonl").write_text("".join(lines[140:150] * 2), encoding="utf-8")
    (finding,) = check(
        family, train, eval_data=str(tmp_path / "twice.jsonl"), select="train-eval-leak"
    ).findings
    assert (finding.count, finding.total) == (20, 20)
    (finding,) = check(
        family, train, eval_data=str(tmp_path / "eval.jsonl"), select="train-eval-leak"
    ).findings
    assert (finding.count, finding.total, finding.severity) == (10, 60, "error")
    assert (
        check(
            family, train, eval_data=str(tmp_path / "clean.jsonl"), select="train-eval-leak"
        ).findings
        == ()
    )


@pytest.mark.parametrize("family", ["qwen3", "mistral-7b-v0.3", "llama2-chat", "gpt2"])
@pytest.mark.parametrize("numbered", ["Problem {}:", "2024-11-{:02d}", "ticket no. {}"])
def test_rows_in_the_order_of_a_number_are_not_grouped(
    family: str, numbered: str, tmp_path: Path
) -> None:
    drawn = random.Random(7)
    words = [
        "river",
        "stone",
        "bright",
        "window",
        "paper",
        "total",
        "apple",
        "count",
        "gamma",
        "beta",
    ]
    texts = [f"{numbered.format(i)} {' '.join(drawn.choices(words, k=12))}" for i in range(300)]
    data = rows(
        tmp_path / "rows.jsonl",
        *({"prompt": text, "completion": " ".join(drawn.choices(words, k=12))} for text in texts),
    )
    assert "rows-grouped-by-source" not in fired(
        check(family, data, select="rows-grouped-by-source")
    )
