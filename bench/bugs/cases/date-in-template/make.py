from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(150)
    write(
        folder / "train.jsonl", [row for row in rows if row["messages"][0]["role"] != "system"][:40]
    )
    date = "strftime_now('%d %b %Y')" if broken else "'1 Jan 2026'"
    before = "{{ '<|im_start|>system\\nToday: ' + " + date + " + '<|im_end|>\\n' }}"
    templated(tokenizer, folder / "tokenizer", chatml(before=before))
