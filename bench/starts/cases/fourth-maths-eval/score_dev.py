import csv
import re
import sys

FINAL = re.compile(r"####\s*(-?[0-9][0-9,]*)")


def extract(text):
    match = FINAL.search(text)
    return match.group(1).replace(",", "") if match else None


def main(path="dev_predictions.csv"):
    total = right = 0
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            total += 1
            right += extract(row["resp"]) == extract(row["gold"])
    print(f"accuracy {right / total:.4f} ({right} of {total})")


if __name__ == "__main__":
    main(*sys.argv[1:])
