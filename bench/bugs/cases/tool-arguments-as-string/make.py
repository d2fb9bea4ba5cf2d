import json
from pathlib import Path

from bench.bugs.inputs.rows import tool_chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = tool_chats(30)
    for n, row in enumerate(rows):
        for message in row["messages"]:
            for m, call in enumerate(message.get("tool_calls", ())):
                call["id"] = f"call{n:03d}{m:02d}"
                if broken:
                    call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
            if message["role"] == "tool":
                message["tool_call_id"] = f"call{n:03d}00"
    write(folder / "train.jsonl", rows)
