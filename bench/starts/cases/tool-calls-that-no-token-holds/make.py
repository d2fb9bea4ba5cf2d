import json
from pathlib import Path


def make(folder: Path) -> None:
    with (folder / "chats.jsonl").open("w", encoding="utf-8") as file:
        for number in range(40):
            city = ("Rome", "Oslo", "Lima", "Cairo")[number % 4]
            call = {"name": "weather", "arguments": {"city": city, "day": number}}
            messages = [
                {"role": "user", "content": f"What is the weather in {city} on day {number}?"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"type": "function", "function": call}],
                },
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
