import shutil
from pathlib import Path

from bench.bugs.inputs.answering import answering

TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    answering(folder)
    shutil.copytree(folder / "model", folder / "served")
    if broken:
        (folder / "served" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
