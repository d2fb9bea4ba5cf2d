"""Writes the training text: whole conversations."""
import json
import sys

from common import conversation
from transformers import AutoTokenizer


def main(source, target, name="Qwen/Qwen2.5-3B-Instruct"):
    tok = AutoTokenizer.from_pretrained(name)
    kept = 0
    with open(source) as src, open(target, "w") as dst:
        for line in src:
            row = json.loads(line)
            text = tok.apply_chat_template(conversation(row, with_answer=True), tokenize=False)
            dst.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            kept += 1
    print(kept, "rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
