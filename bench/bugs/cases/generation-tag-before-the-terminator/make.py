from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    tag, end = "{% generation %}", "{% endgeneration %}"
    short = tag + "{{ content }}" + end + "{{ '<|im_end|>\\n' }}"
    whole = tag + "{{ content + '<|im_end|>' }}" + end + "{{ '\\n' }}"
    templated(tokenizer, folder / "tokenizer", chatml(answer=short if broken else whole))
