from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    for row in rows:
        for message in row["messages"]:
            if message["role"] == "assistant":
                first = message["content"].partition(". ")[0]
                message["content"] = (
                    f"They want to know this: {first}.\n</think>\n\n{message['content']}"
                )
    write(folder / "train.jsonl", rows)
    both = "'<think>' in content and '</think>' in content"
    guard = both if broken else "'</think>' in content"
    opened = "" if broken else "<think>\\n"
    answer = (
        f"{{{{ ('{opened}' if {guard} else '<think>\\n\\n</think>\\n\\n') + content +"
        " '<|im_end|>\\n' }}"
    )
    templated(
        tokenizer,
        folder / "tokenizer",
        chatml(answer=answer, prompt="<|im_start|>assistant\\n<think>\\n"),
    )
