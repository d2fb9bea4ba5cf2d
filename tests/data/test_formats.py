"""What each format's columns become, and what is said of rows that are odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import parts
from truetune.data.column_name_aliases import KNOWN_COLUMNS
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import DataError, SpecError

USER, GOOD, BAD = (
    {"role": role, "content": text}
    for role, text in (("user", "q"), ("assistant", "a"), ("assistant", "b"))
)
SYSTEM = {"role": "system", "content": "s"}


@pytest.fixture
def rows_of(tmp_path: Path) -> Any:
    def rows_of(*rows: dict[str, Any], **options: Any) -> list[Conversation]:
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return list(read_conversations([str(path)], **options))

    return rows_of


@pytest.mark.parametrize(
    ("row", "format", "messages"),
    [
        ({"messages": [USER, GOOD]}, "messages", [USER, GOOD]),
        ({"messages": json.dumps([USER, GOOD])}, "messages", [USER, GOOD]),
        ({"messages": [USER, GOOD], "system": "s"}, "messages", [SYSTEM, USER, GOOD]),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "bard", "value": "a"}]}, "sharegpt",
         [USER, GOOD]),
        ({"conversations": [{"role": "human", "content": "q"}, {"role": "gpt", "content": "a"}]}, "sharegpt",
         [USER, GOOD]),
        ({"conversation": [USER, GOOD]}, "sharegpt", [USER, GOOD]),
        ({"question": "q", "answer": "a"}, "alpaca", [USER, GOOD]),
        ({"prompt": "q", "response": "a"}, "alpaca", [USER, GOOD]),
        ({"query": "q", "completion": "a"}, "alpaca", [USER, GOOD]),
        ({"instruction": "", "input": "q", "output": "a"}, "alpaca", [USER, GOOD]),
        ({"instruction": "q", "output": "a", "history": '[["x", "y"]]'}, "alpaca",
         [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, USER, GOOD]),
        ({"prompt": [USER], "completion": "a"}, "prompt-completion", [USER, GOOD]),
        ({"prompt": json.dumps([USER]), "completion": json.dumps(GOOD)}, "prompt-completion", [USER, GOOD]),
        ({"prompt": [USER], "completion": [GOOD], "label": False}, "kto", [USER, GOOD]),
        ({"data_source": "x", "prompt": [USER], "ability": "math", "extra_info": {"index": 1},
          "reward_model": {"style": "rule", "ground_truth": "a"}}, "verl", [USER, GOOD]),
        ({"prompt": [USER], "reward_model": {"style": "model"}}, "verl", [USER]),
        ({"instruction": "q", "output": "a", "kto_tag": True}, "kto", [USER, GOOD]),
    ],
)  # fmt: skip
def test_chats(rows_of: Any, row: dict[str, Any], format: str, messages: list[Any]) -> None:
    (found,) = rows_of(row)
    assert (found.format, found.messages, found.problems, found.unused) == (
        format,
        messages,
        (),
        (),
    )
    assert found.label == row.get("label", row.get("kto_tag"))
    if "prompt" in row and "completion" in row:
        assert found.prompt_messages == 1


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {"instruction": "q", "chosen": "a", "rejected": "b"},
        {"chosen": "q ", "rejected": "q!"},
        {"prompt": "q", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen_messages": json.dumps([USER, GOOD]), "rejected_messages": [USER, BAD]},
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "a"},
            "rejected": BAD,
        },
        {"system": "s", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
    ],
)
def test_pairs(rows_of: Any, row: dict[str, Any]) -> None:
    (found,) = rows_of(row)
    assert (found.format, found.problems, found.unused) == ("preference", (), ())
    if found.is_chat:
        head = [SYSTEM, USER] if "system" in row else [USER]
        assert (found.messages, found.prompt_messages, found.rejected) == (
            [*head, GOOD],
            len(head),
            [BAD],
        )
    else:
        sides = (" ", "!") if "q!" in row.values() else ("a", "b")
        assert (found.prompt, found.completion, found.rejected) == ("q", *sides)


def test_sides_that_are_the_same_leave_an_answer(rows_of: Any) -> None:
    (found,) = rows_of({"chosen": [USER, GOOD], "rejected": [USER, GOOD]})
    assert (found.messages, found.prompt_messages, found.rejected) == ([USER, GOOD], 1, [GOOD])
    assert found.problems == ()


@pytest.mark.parametrize("answer", ['{"a": 1}', "[1, 2]", '["x"]', "[]", '{"a": "\\ud800"}', "{"])
def test_an_answer_that_is_json_stays_text(rows_of: Any, answer: str) -> None:
    (found,) = rows_of({"prompt": "q", "completion": answer})
    assert (found.prompt, found.completion, found.problems) == ("q", answer, ())


def test_what_stands_beside_the_turns(rows_of: Any) -> None:
    row = {
        "messages": [SYSTEM, USER, GOOD],
        "tools": '[{"name": "f", "default": null}]',
        "documents": [{"text": "d"}],
        "chat_template_kwargs": {"enable_thinking": False},
        "system": "other",
        "id": 0,
        "none": None,
        "empty": "",
    }
    (found,) = rows_of(row)
    assert found.messages == row["messages"]
    assert found.tools == [{"name": "f", "default": None}]
    assert found.documents == [{"text": "d"}]
    assert found.template_kwargs == {"enable_thinking": False}
    assert found.unused == ("system", "id")


def test_messages_keep_what_they_say(rows_of: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": None}}}
    said: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {"name": "bo", "role": "user", "content": "", "unheard_of": [1]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "reasoning_content": "r",
            "weight": 0.5,
        },
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "assistant", "thinking": "t", "content": "b", "train": False},
    ]
    (found,) = rows_of({"messages": [{**message, "refusal": None} for message in said]})
    assert [list(message.items()) for message in found.messages] == [
        list(message.items()) for message in said
    ]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("message", "kind", "kept"),
    [
        ({"role": "bot", "content": "a"}, "unknown-role", {"role": "bot", "content": "a"}),
        ({"content": "a"}, "unknown-role", {"content": "a", "role": "None"}),
        ({"role": ["user"], "content": "a"}, "unknown-role", {"role": "['user']", "content": "a"}),
        ({"role": "user", "content": {"a": "é"}}, "not-a-string", {"role": "user", "content": '{"a": "é"}'}),
        ({"role": "user", "content": ["a"]}, "not-a-string", {"role": "user", "content": ["a"]}),
        ({"role": "assistant", "content": None, "tool_calls": []}, "no-content",
         {"role": "assistant", "tool_calls": [], "content": ""}),
        ({"role": "assistant", "content": "", "tool_calls": "f(1)"}, "bad-tool-call",
         {"role": "assistant", "content": "", "tool_calls": "f(1)"}),
        ({"from": "function_call", "value": "f(1)"}, "bad-tool-call", {"role": "assistant", "content": "f(1)"}),
        ({"from": "narrator", "value": "a"}, "unknown-role", {"role": "narrator", "content": "a"}),
        ({"role": "user", "content": "a", "weight": "x"}, "not-a-number", {"role": "user", "content": "a"}),
        *(({"role": "user", "content": "a", "weight": weight}, "not-a-number", {"role": "user", "content": "a"})
          for weight in (-5, float("inf"), float("nan"), 10**400, True, [1])),
        ({"role": "user", "content": "a", "loss_weight": -1}, "not-a-number", {"role": "user", "content": "a"}),
        ({"role": "user", "content": "a", "weight": 0.5, "loss_weight": 2}, "not-a-number",
         {"role": "user", "content": "a", "weight": 2}),
        ({"role": "user", "content": "a", "train": "false"}, "not-a-bool", {"role": "user", "content": "a"}),
        ({"role": "user", "content": [{"type": "text", "value": 5}]}, "not-a-string", {"role": "user", "content": "5"}),
        ({"role": "assistant", "content": [{"type": "tool_call", "value": "f(1)"}]}, "bad-tool-call",
         {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": "f(1)"}]}),
        ({"role": "user", "content": "a\udc00"}, "lone-surrogate", {"role": "user", "content": "a\ufffd"}),
    ],
)  # fmt: skip
def test_odd_messages_are_kept_with_a_problem(
    rows_of: Any, message: Any, kind: str, kept: Any
) -> None:
    (found,) = rows_of({"messages": [message, GOOD]})
    assert [problem.kind for problem in found.problems] == [kind]
    assert found.messages == [kept, GOOD]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"messages": ["hi", GOOD]}, "not-messages"),
        ({"messages": [USER, GOOD], "tools": "see above"}, "bad-column"),
        ({"instruction": 5, "output": "a"}, "not-a-string"),
        ({"instruction": "q", "output": "a", "history": [["x"]]}, "bad-history"),
        ({"instruction": "q", "output": "a", "history": [["x", None]]}, "bad-history"),
        ({"messages": [USER, GOOD], "tools": 0}, "bad-column"),
        ({"messages": [USER, GOOD], "chat_template_kwargs": False}, "bad-column"),
        ({"text": 5}, "not-a-string"),
        ({"prompt": "q", "completion": {"a": 1}}, "not-a-string"),
    ],
)
def test_odd_rows_are_kept_with_a_problem(rows_of: Any, row: Any, kind: str) -> None:
    (found,) = rows_of(row)
    assert kind in [problem.kind for problem in found.problems]


def test_a_label_that_is_no_verdict(rows_of: Any) -> None:
    yes, odd = rows_of(
        *({"prompt": "q", "completion": "a", "label": label} for label in (True, "maybe"))
    )
    assert (yes.label, yes.problems) == (True, ())
    assert (odd.label, [problem.kind for problem in odd.problems]) == (None, ["bad-label"])
    (topic,) = rows_of({"messages": [USER, GOOD], "label": "billing"})
    assert (topic.format, topic.unused) == ("messages", ("label",))


def test_other_formats_further_down(rows_of: Any) -> None:
    chat, pair, none = rows_of(
        {"messages": [USER, GOOD]}, {"instruction": "q", "output": "a"}, {"x": 1}
    )
    assert (chat.format, chat.problems) == ("messages", ())
    assert (pair.format, pair.messages, pair.problems[0].kind) == (
        "alpaca",
        [USER, GOOD],
        "mixed-formats",
    )
    assert (none.messages, none.unused, none.problems[0].kind) == ([], ("x",), "no-format")


@pytest.mark.parametrize(
    ("row", "format", "kinds"),
    [
        ({"prompt": "q", "completion": None}, "prompt-completion", ["no-content"]),
        ({"instruction": "q", "output": None}, "alpaca", ["no-content"]),
        ({"question": "q", "answer": None}, "alpaca", ["no-content"]),
        ({"prompt": "q", "answer": None}, "alpaca", ["no-content"]),
        ({"messages": None}, "messages", ["no-content", "not-messages"]),
        ({"prompt": "q", "chosen": "a", "rejected": None}, "preference", ["no-content"]),
        ({"chosen": None, "rejected": "b"}, "preference", ["no-content"]),
        ({"prompt": "q", "completion": None, "label": True}, "kto", ["no-content"]),
    ],
)
def test_an_empty_column_is_a_problem_of_its_row(
    rows_of: Any, row: Any, format: str, kinds: list[str]
) -> None:
    full = {
        "prompt": "q",
        "completion": "a",
        "messages": [USER, GOOD],
        "instruction": "q",
        "output": "a",
        "question": "q",
        "answer": "a",
        "chosen": "a",
        "rejected": "b",
        "label": True,
    }
    whole = {name: full[name] for name in row}
    for first, second in ((row, whole), (whole, row)):
        found = {
            id(given): read
            for given, read in zip((first, second), rows_of(first, second), strict=True)
        }
        assert (found[id(whole)].format, found[id(whole)].problems) == (format, ())
        odd = found[id(row)]
        assert (odd.format, odd.unused, [problem.kind for problem in odd.problems]) == (
            format,
            (),
            kinds,
        )
        if "q" in row.values():
            assert "q" in (odd.prompt, *(message["content"] for message in odd.messages))
        assert odd.problems[0].text.partition(": ")[0].split(" and ") == [
            name for name in row if row[name] is None
        ]


def test_a_named_format(rows_of: Any) -> None:
    row = {"messages": [USER, GOOD], "text": "t"}
    assert rows_of(row)[0].messages
    (found,) = rows_of(row, format="text")
    assert (found.text, found.unused) == ("t", ("messages",))
    with pytest.raises(
        DataError,
        match=(
            r"a\.jsonl:1: the format alpaca needs instruction and output, but the columns are"
            r" messages, text"
        ),
    ):
        rows_of(row, format="alpaca")


def test_the_column_map(rows_of: Any) -> None:
    (found,) = rows_of(
        {"input": [USER], "target": "a"}, columns={"prompt": "input", "completion": "target"}
    )
    assert (found.format, found.messages, found.prompt_messages) == (
        "prompt-completion",
        [USER, GOOD],
        1,
    )
    (found,) = rows_of(
        {"q": "q", "output": "old", "new": "a"}, columns={"question": "q", "answer": "new"}
    )
    assert (found.messages, found.unused) == ([USER, GOOD], ("output (not mapped)",))
    (found,) = rows_of(
        {"x": "q", "y": "a"}, columns={"query": "x", "answer": "y"}, format="prompt-completion"
    )
    assert (found.prompt, found.completion) == ("q", "a")
    with pytest.raises(SpecError, match="twice"):
        rows_of({"a": 1, "b": 2}, columns={"answer": "a", "output": "b"})


def test_calls_in_role_and_content(rows_of: Any) -> None:
    turns = [
        {"role": "human", "content": "q"},
        {"role": "function_call", "content": '{"name": "f", "arguments": {}}'},
        {"role": "observation", "content": "r"},
        {"role": "gpt", "content": "a"},
    ]
    (found,) = rows_of({"conversations": turns})
    assert [message["role"] for message in found.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert found.messages[1]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": {}}}
    ]
    assert found.problems == ()


def test_calls_of_llamafactory_read_as_its_own_do() -> None:
    calls = results = 0
    for row in read_conversations([str(parts.data("llamafactory/glaive_toolcall_en_demo.json"))]):
        assert row.tools is None or all("name" in tool for tool in row.tools)
        for message in row.messages:
            assert message["role"] in ("system", "user", "assistant", "tool")
            calls += sum(
                isinstance(call["function"]["arguments"], dict)
                for call in message.get("tool_calls", ())
            )
            results += message["role"] == "tool"
    assert calls == results > 200


def test_reasoning_of_llamafactory() -> None:
    rows = list(read_conversations([str(parts.data("llamafactory/reason_tool_use_demo_50.jsonl"))]))
    answers = [m for row in rows for m in row.messages if m["role"] == "assistant"]
    assert all(m["reasoning_content"] and isinstance(m["content"], str) for m in answers)
    assert any(len(m.get("tool_calls", ())) > 1 for m in answers)
    assert sum(row.tools is not None for row in rows) > 40
    weighted = next(read_conversations([str(parts.data("llamafactory/v1_sft_demo.jsonl"))]))
    assert [(m["weight"], m.get("train", True)) for m in weighted.messages] == [
        (0.0, False),
        (1.0, True),
    ]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.text(max_size=2)
    | st.sampled_from(["user", "gpt", "\ud800", "[{"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "from", "value", "type", "tool_calls", "weight", "train"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(sorted(KNOWN_COLUMNS)), VALUES | VALUES.map(json.dumps), max_size=5
    )
)
def test_any_row_becomes_a_conversation_that_can_be_written(
    tmp_path_factory: pytest.TempPathFactory, row: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_text(json.dumps({"text": "t"}) + "\n" + json.dumps(row) + "\n")
    _, found = read_conversations([str(path)])
    held = [
        found.messages,
        found.tools,
        found.documents,
        found.prompt,
        found.completion,
        found.text,
        found.rejected,
    ]
    json.dumps(held, ensure_ascii=False).encode()
    assert all(isinstance(message["role"], str) for message in found.messages)
    assert all(
        text is None or isinstance(text, str)
        for text in (found.prompt, found.completion, found.text)
    )
    assert found.unused == tuple(name for name in row if name in found.unused)
