from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(40))
    template = chatml(
        answer="{% generation %}{{ content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    )
    if broken:
        header = "{{ '<|im_start|>' + message['role'] + '\\n' }}"
        early = "{% if message['role'] == 'assistant' %}{% generation %}" + header
        late = "{% if message['role'] != 'assistant' %}" + header + "{% endif %}"
        own = "{% if message['role'] == 'assistant' %}{% generation %}"
        template = template.replace(header, late).replace(own, early)
    templated(tokenizer, folder / "tokenizer", template)
