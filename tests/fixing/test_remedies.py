"""Remedies: for each, a real tokenizer finds the fault, fix ends it, and a check of the result finds nothing new."""

# ruff: noqa: E501 (one fault a line)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import truetune
from tests.fixing import Done, chat, fixed
from tests.parts import folder
from truetune.checks.rule_catalogue import find_rule
from truetune.fixing.remedy_catalogue import all_remedies

TURN = {"role": "user", "content": "Is it open?"}
DONE = {"role": "assistant", "content": "It is open."}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "hours", "content": "nine"}


def called(arguments: Any, content: Any = "", id: str = "c1") -> dict[str, Any]:
    """A conversation with one tool call."""
    call = {"id": id, "type": "function", "function": {"name": "hours", "arguments": arguments}}
    asked = {"role": "assistant", "content": content, "tool_calls": [call]}
    return {"messages": [TURN, asked, {**RESULT, "tool_call_id": id}, DONE]}


def turns(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages)}


def pair(prompt: Any, chosen: Any, rejected: Any) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


class Fault(NamedTuple):
    """A row with a fault."""

    what: str
    """The remedy, by what it does"""
    rule: str
    tokenizer: str
    row: dict[str, Any] | str
    unsafe: bool = False
    settings: dict[str, Any] = {}  # noqa: RUF012
    others: tuple[dict[str, Any], ...] = (chat("Where is it?", "On the hill by the sea."),)


USER, ANSWER = [TURN], [DONE]
MALFORMED, TEMPLATE, ALIAS = (
    "malformed-rows",
    "template-rejects-rows",
    "turn-roles-unknown-to-template",
)
FORM = "write rows in the structure that the template accepts"
PAIRS = (pair(USER, ANSWER, [{"role": "assistant", "content": "Who could know that?"}]),)
EOS = "<|im_end|>"
FAULTS = (
    Fault("rename roles", ALIAS, "qwen2.5-instruct", turns({"role": "human", "content": "q"}, {"role": "bot", "content": "a"})),
    Fault("rename roles", ALIAS, "gemma3", turns({"role": " User", "content": "q"}, {"role": "model", "content": "a"})),
    Fault("rename roles", ALIAS, "mistral-nemo", turns(TURN, {"role": "ASSISTANT", "content": "a"})),
    Fault("rename the keys", ALIAS, "llama3.1-instruct", turns({"speaker": "user", "text": "q"}, {"speaker": "ai", "text": "a"})),
    Fault("write U+FFFD", MALFORMED, "qwen3", '{"messages": [{"role": "user", "content": "\\ud83d?"}, {"role": "assistant", "content": "a"}]}'),
    Fault("remove a key", MALFORMED, "qwen3", '{"messages": [{"role": "user", "content": "q", "content": "q"}, {"role": "assistant", "content": "a"}]}'),
    Fault("keep the last", MALFORMED, "qwen3", '{"messages": [{"role": "user", "content": "q", "content": "r"}, {"role": "assistant", "content": "a"}]}', True),
    Fault("write numbers", MALFORMED, "smollm2", chat(5, 1.5)),
    Fault("write weight", MALFORMED, "smollm2", turns(TURN, {**DONE, "weight": "0.5"}, TURN, {**DONE, "train": "true"})),
    Fault("write labels", MALFORMED, "qwen2.5-instruct", {"prompt": [TURN], "completion": [DONE], "label": "desirable"},
          settings={"format": "kto"}, others=({"prompt": [TURN], "completion": [{"role": "assistant", "content": "No."}], "label": False},)),
    Fault("put a single", MALFORMED, "llama3.1-instruct", turns(TURN, {"role": "assistant", "content": "", "tool_calls": {"type": "function", "function": {"name": "f", "arguments": {}}}}, RESULT, DONE)),
    Fault("put a single", MALFORMED, "qwen3", {**chat(), "tools": {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}}),
    Fault("write empty content", MALFORMED, "phi4", turns({"role": "system", "content": None}, TURN, DONE)),
    Fault("write a content that is a list", MALFORMED, "gpt-oss", chat(["q"], "a")),
    Fault("join a content", MALFORMED, "gpt-oss", chat(["q", "r"], "a"), True),
    Fault(FORM, TEMPLATE, "qwen3", called({"day": "Monday"}, None)),
    Fault(FORM, TEMPLATE, "qwen2.5-instruct", chat([{"type": "text", "text": "q "}, {"type": "text", "text": "r"}], "a")),
    Fault(FORM, TEMPLATE, "mistral-nemo", called({"day": "Monday"}, None)),
    Fault(FORM, TEMPLATE, "mistral-7b-v0.3", called({"day": "Monday"}, id="call_ab1234")),
    Fault(FORM, TEMPLATE, "gemma3", turns({"role": "developer", "content": "Be brief."}, TURN, DONE)),
    Fault(FORM, TEMPLATE, "mistral-nemo", {**called({"day": "Monday"}, None), "tools": [{"name": "hours", "description": "d", "parameters": {"type": "object", "properties": {}}}]}),
    Fault("put the system turn", TEMPLATE, "gemma2", turns({"role": "system", "content": "Be brief."}, TURN, DONE), True),
    Fault("join turns of one role", TEMPLATE, "gemma2", turns(TURN, TURN, DONE), True),
    Fault("join turns of one role", TEMPLATE, "mistral-7b-v0.1", turns(DONE, TURN, DONE), True),
    Fault("drop rows on which the template", TEMPLATE, "gemma2", turns(TURN, RESULT, DONE), True),
    Fault("write as text", "values-printed-as-python", "llama3.1-instruct", chat([{"type": "text", "text": "q"}], "a")),
    Fault("write as text", "values-printed-as-python", "llama3-instruct", called({"day": "Monday"}, None)),
    Fault("make arguments", "tool-arguments-double-encoded", "llama3.1-instruct", called('{"day": "Monday", "n": 1.0}')),
    Fault("make arguments", "tool-arguments-double-encoded", "gpt-oss", called(json.dumps('{"day": "Monday"}'))),
    Fault("remove control", "special-token-in-content", "qwen3", chat("q<|im_<|im_end|>end|>\n<|im_start|>system", "a"), True),
    Fault("remove control", "special-token-in-content", "llama3.1-instruct", chat([{"type": "text", "text": "q<|eot_id|>"}], "a<|eot_id|>"), True),
    Fault("remove control", "special-token-inside-pair-answer", "qwen2.5-instruct", pair(USER, ANSWER, [{"role": "assistant", "content": f"No.{EOS} And?"}]), True, others=PAIRS),
    Fault("drop rows without messages", MALFORMED, "qwen3", {"messages": []}, True),
    Fault("drop rows without messages", MALFORMED, "qwen3", turns({"role": "user", "content": None}, DONE), True),
    Fault("drop rows with an empty answer", "answer-is-empty", "smollm2", chat("q", "  "), True),
    Fault("drop rows without a supervised", "no-supervised-token", "smollm2", turns(TURN), True),
    Fault("drop rows with control", "special-token-in-structure", "qwen3", turns({**TURN, "name": "x", "<|im_end|>": 1}, DONE), True),
    Fault("drop pairs whose answers", "preference-pairs-identical", "qwen2.5-instruct", pair(USER, ANSWER, ANSWER), True, others=PAIRS),
    Fault("drop pairs whose rejected", "rejected-side-empty", "qwen2.5-instruct", pair(USER, ANSWER, [{"role": "assistant", "content": " "}]), True, others=PAIRS),
    Fault("take the prompt", "pair-prompt-not-shared", "qwen2.5-instruct", pair(USER, USER + ANSWER, [*USER, {"role": "assistant", "content": "No."}]), others=PAIRS),
    Fault("take the prompt", "pair-prompt-not-shared", "qwen2.5-base", pair("Is the light house open?", f"Is the light house open? Yes.{EOS}", f"Is the light house open? No.{EOS}"), others=()),
    Fault("drop rows that are equal", "duplicate-rows", "qwen3", chat("Where is it?", "On the hill by the sea."), True),
    Fault("remove BOS", "render-then-retokenize-double-bos", "llama2-base", {"text": "<s>It is open.</s>"}, True, others=({"text": "It is near.</s>"},)),
    Fault("remove the stop", "duplicate-eos", "llama2-base", {"text": "It is open.</s></s>"}, True, others=({"text": "It is near.</s>"},)),
    Fault("end both", "pair-side-not-terminated", "qwen2.5-base", pair("Is it open?\n", f"yes{EOS}", "no"), others=()),
    Fault("move the space", "boundary-token-merge", "gpt2", {"prompt": "Is it open? ", "completion": "it is open"}, True, {"append_eos": True}, others=()),
    Fault("end rows", "eos-not-appended-by-tokenizer", "gpt2", {"text": "It is open."}, True, others=({"text": "It is near.<|endoftext|>"},)),
    Fault("write prompt and answers", "plain-string-pair-skips-template", "phi4", {"prompt": "Open?", "completion": " Yes."}, True, {"append_eos": True}, others=()),
)  # fmt: skip


def _data(tmp_path: Path, fault: Fault) -> Path:
    row = fault.row if isinstance(fault.row, str) else json.dumps(fault.row)
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(f"{line}\n" for line in (*map(json.dumps, fault.others), row)), encoding="utf-8"
    )
    return data


def _found(data: Path, tokenizer: Path, settings: dict[str, Any]) -> dict[str, int]:
    report = truetune.check(data, tokenizer, **settings)
    return {finding.rule: finding.count or 0 for finding in report.findings}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.what[:28]}-{fault.tokenizer}")
def test_a_remedy_ends_what_its_rule_finds(tmp_path: Path, fault: Fault) -> None:
    tokenizer = folder(fault.tokenizer)
    data = _data(tmp_path, fault)
    before = _found(data, tokenizer, fault.settings)
    assert fault.rule in before, before
    done = fixed(data, tokenizer, unsafe=fault.unsafe, **fault.settings)
    made = {(change["rule"], change["change"]) for change in done.changes}
    assert any(rule == fault.rule and what.startswith(fault.what) for rule, what in made), made
    _others_stay(data, done, fault)
    if fault.others or done.fixed.dropped_rows < done.fixed.rows:
        after = _found(done.path, tokenizer, fault.settings)
        assert fault.rule not in after
        assert after.keys() <= before.keys()


@pytest.mark.parametrize("tokenizer", ["smollm2", "deepseek-v3"])
@pytest.mark.parametrize(
    "arguments", [{"day": "Monday"}, '{"day": "Monday"}'], ids=["object", "text"]
)
def test_no_call_is_lost_to_make_a_row_fit(tmp_path: Path, tokenizer: str, arguments: Any) -> None:
    """With `content: ""` these templates take the row, write no call, and teach an empty answer."""
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(called(arguments, None)) + "\n", encoding="utf-8")
    assert TEMPLATE in _found(data, folder(tokenizer), {})
    done = fixed(data, folder(tokenizer))
    assert done.body == data.read_bytes()


def _others_stay(data: Path, done: Done, fault: Fault) -> None:
    before, after = data.read_bytes().splitlines(), done.body.splitlines()
    assert after[: len(fault.others)] == before[: len(fault.others)]


def test_an_unsafe_remedy_is_offered_and_not_made(tmp_path: Path) -> None:
    for fault in FAULTS:
        if not fault.unsafe or fault.tokenizer not in ("qwen3", "smollm2"):
            continue
        done = fixed(_data(tmp_path, fault), folder(fault.tokenizer), **fault.settings)
        assert any(
            rule == fault.rule and what.startswith(fault.what) for rule, what in done.fixed.offered
        ), fault.what
        assert done.body == (tmp_path / "data.jsonl").read_bytes()


def test_each_remedy_has_a_fault() -> None:
    for remedy in all_remedies():
        assert issubclass(find_rule(remedy.rule), object)
        known = any(
            remedy.rule == fault.rule and remedy.what.startswith(fault.what) for fault in FAULTS
        )
        assert known or remedy.rule == "train-eval-leak", remedy.what
        unsafe = [
            fault.unsafe
            for fault in FAULTS
            if remedy.rule == fault.rule and remedy.what.startswith(fault.what)
        ]
        assert all(one != remedy.safe for one in unsafe), remedy.what


def test_rows_that_stand_in_the_evaluation_data_go(tmp_path: Path) -> None:
    tokenizer = folder("qwen3")
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text(json.dumps(chat("is it OPEN", "Yes, it is.")), encoding="utf-8")
    data = tmp_path / "data.jsonl"
    lines = [chat("Is it open?", "yes it is"), chat("Where is it?", "On the hill by the sea.")]
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    settings = {"eval_data": (str(held_out),)}
    assert "train-eval-leak" in _found(data, tokenizer, settings)
    done = fixed(data, tokenizer, unsafe=True, **settings)
    assert done.body.decode() == json.dumps(lines[1])
    assert "train-eval-leak" not in _found(done.path, tokenizer, settings)


@pytest.mark.parametrize(
    ("tokenizer", "row"),
    [
        ("qwen3", turns({"role": "narrator", "content": "q"}, DONE)),
        ("qwen3", turns({"role": 1, "content": "q"}, DONE)),
        ("qwen3", turns({"role": None, "content": "q"}, DONE)),
        ("llama3.1-instruct", called('{"no JSON')),
        ("llama3.1-instruct", called('["a list"]')),
        ("qwen3", chat(float("nan"), "a")),
        ("qwen3", chat({"text": "q"}, "a")),
        ("qwen3", turns({"role": "user", "content": None}, DONE)),
        ("gemma2", turns(DONE, TURN)),
        ("qwen2.5-instruct", chat([{"type": "image"}, {"type": "text", "text": "q"}], "a")),
    ],
)
def test_what_is_not_plain_is_left_with_a_reason(
    tmp_path: Path, tokenizer: str, row: dict[str, Any]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(row), encoding="utf-8")
    done = fixed(data, folder(tokenizer))
    assert done.body == data.read_bytes()
    assert done.changes == []
    assert done.fixed.failed()
    assert all(left.why and left.message for left in done.fixed.left)


def test_a_form_that_the_template_takes_stays(tmp_path: Path) -> None:
    """Null beside calls, strings as arguments, parts of text: where a template takes them, nothing is wrong."""
    for tokenizer, row in (
        ("qwen2.5-instruct", called({"day": "Monday"}, None)),
        ("deepseek-v3", called('{"day": "Monday"}')),
        ("gemma3", chat([{"type": "text", "text": "q"}], "a")),
        ("qwen3", called('{"day": "Monday"}')),
    ):
        data = tmp_path / "data.jsonl"
        data.write_text(json.dumps(row), encoding="utf-8")
        assert fixed(data, folder(tokenizer)).body == data.read_bytes(), tokenizer


def test_one_rule_at_a_time(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(turns({"role": "human", "content": 5}, DONE)), encoding="utf-8")
    done = fixed(data, folder("qwen3"), select=("turn-roles-unknown-to-template",))
    assert json.loads(done.body) == turns({"role": "user", "content": 5}, DONE)
    assert done.fixed.left == ()
