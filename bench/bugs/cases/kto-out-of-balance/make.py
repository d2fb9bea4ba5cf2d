from pathlib import Path

from bench.bugs.inputs.rows import questions, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = []
    for n, (asked, answer) in enumerate(questions(120)):
        good = n % 40 != 0 if broken else n % 2 == 0
        rows.append(
            {"prompt": say("user", asked), "completion": say("assistant", answer), "label": good}
        )
    write(folder / "pairs.jsonl", rows)
