import json
import re
import sys

NUM = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def to_number(s):
    return float(s.replace(",", ""))


def read_answer(text):
    m = NUM.search(text)
    return to_number(m.group()) if m else None


def main(path):
    n = ok = none = 0
    for line in open(path):
        row = json.loads(line)
        pred = read_answer(row["completion"])
        gold = to_number(row["answer"])
        n += 1
        if pred is None:
            none += 1
        elif abs(pred - gold) < 1e-4:
            ok += 1
    print(f"{path}: n={n} accuracy={ok / n:.4f} unparsed={none}")


if __name__ == "__main__":
    for p in sys.argv[1:]:
        main(p)
