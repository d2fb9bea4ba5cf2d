import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, write_lines


def make(folder: Path) -> None:
    """Rows of one long policy, a comment, and a decision of one word."""
    drawn = random.Random(23)
    rules = (" ".join(row["output"].split()[:38]) for row in instructions()[300:328])
    listed = "\n".join(f"{number}. {rule}" for number, rule in enumerate(rules, start=1))
    policy = f"### Content policy, version 14\n{listed}"
    rows = []
    for _ in range(480):
        comment = drawn.choice(instructions())["output"][: drawn.randrange(60, 240)]
        decision = drawn.choices(("allow", "remove", "escalate"), (6, 3, 1))[0]
        text = f"{policy}\n\n### Comment\n{comment}\n\n### Decision\n{decision}<|im_end|>"
        rows.append({"text": text})
    write_lines(folder / "moderation.jsonl", rows)
    link_tokenizer("qwen2.5-instruct", folder / "Qwen2.5-7B-Instruct")
