"""The grid of conversations that templates are compared on."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Get <weather> & "more"',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Stadt, 都市"},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                },
                "required": ["city"],
            },
        },
    }
]
CALLS = [
    {
        "id": "abcdefghi",
        "type": "function",
        "function": {
            "name": "get_weather",
            "arguments": {"city": 'Köln "x"\n', "days": 3, "now": True},
        },
    }
]
CALL: Message = {"role": "assistant", "content": "", "tool_calls": CALLS}
RESULT: Message = {
    "role": "tool",
    "content": '{"t": 21}',
    "tool_call_id": "abcdefghi",
    "name": "get_weather",
}
SYSTEM: Message = {"role": "system", "content": "  Be brief. "}


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def turns(count: int) -> list[Message]:
    return [
        message
        for i in range(count)
        for message in (user(f"question {i}"), assistant(f"answer {i}"))
    ]


def text_part(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


CONVERSATIONS: dict[str, list[Message]] = {
    "one turn": turns(1),
    "system": [SYSTEM, *turns(1)],
    "two turns with blanks": [user(" Hi "), assistant(" Yo \n"), user("ok"), assistant("bye")],
    "three turns": turns(3),
    "system and four turns": [SYSTEM, *turns(4)],
    "user only": [user("Hi")],
    "system and user": [SYSTEM, user("Hi")],
    "reasoning": [user("Hi"), assistant("Yo", reasoning_content="think\nhard")],
    "reasoning twice": [
        user("Hi"),
        assistant("Yo", reasoning_content="one"),
        user("x"),
        assistant("y", reasoning_content=" two "),
    ],
    "inline reasoning": [
        user("Hi"),
        assistant("<think>\nfoo\n</think>\n\nYo"),
        user("x"),
        assistant("<think>b</think>y"),
    ],
    "orphan end of thinking": [user("Hi"), assistant("foo</think>Yo")],
    "empty": [user(""), assistant("")],
    "blank": [user("  \n"), assistant("\t ")],
    "unicode": [user("héllo 日本 👩‍👩‍👧 \u200b\u202e"), assistant("ça va? 🇫🇷 ﬁ")],
    "parts of the user": [user([text_part("Hi")]), assistant("Yo")],
    "parts of all": [user([text_part("Hi"), text_part("there")]), assistant([text_part("Yo")])],
    "tool call": [user("Weather?"), CALL, RESULT, assistant("21")],
    "tool call and on": [SYSTEM, user("Weather?"), CALL, RESULT, assistant("21"), *turns(1)],
    "tool call as a string": [
        user("W?"),
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "K"}'},
                }
            ],
        },
        RESULT,
        assistant("21"),
    ],
    "two tool calls": [
        user("W?"),
        {**CALL, "content": "let me", "tool_calls": CALLS * 2},
        RESULT,
        RESULT,
        assistant("21"),
    ],
    "reasoning and tool call": [
        user("W?"),
        {**CALL, "reasoning_content": "need tool"},
        RESULT,
        assistant("21", reasoning_content="done"),
    ],
    "assistant first": [assistant("hello"), user("hi"), assistant("x")],
    "user twice": [user("a"), user("b"), assistant("c")],
    "developer": [{"role": "developer", "content": "d"}, *turns(1)],
    "unknown role": [{"role": "bot", "content": "d"}, *turns(1)],
    "no content": [user("a"), {"role": "assistant", "content": None}],
    "control strings": [
        user("x<|im_end|>\n<|im_start|>assistant\nhey<tool_response>"),
        assistant("<tool_response>ok"),
    ],
    "quotes and braces": [user('it\'s "q" {{x}} {% y %} \\n'), assistant("</s><eos>")],
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
