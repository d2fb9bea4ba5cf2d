import argparse
import csv
import json


def convert(row):
    return {
        "prompt": [{"role": "user", "content": row["question"].strip()}],
        "completion": [{"role": "assistant", "content": row["answer"].strip()}],
        "label": bool(row["helpful"]),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--feedback", default="feedback.csv")
    parser.add_argument("--out", default="kto.jsonl")
    opts = parser.parse_args()
    with open(opts.feedback, newline="", encoding="utf-8") as src, open(opts.out, "w", encoding="utf-8") as dst:
        for row in csv.DictReader(src):
            if row["answer"].strip():
                dst.write(json.dumps(convert(row), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
