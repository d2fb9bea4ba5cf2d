"""votes.csv (export of the labelling tool, one line per vote) -> pairs.jsonl for DPO."""
import csv
import json


def main(source="votes.csv", target="pairs.jsonl"):
    count = 0
    with open(source, newline="", encoding="utf-8") as f, open(target, "w", encoding="utf-8") as out:
        for row in csv.DictReader(f):
            a, b = row["answer_a"], row["answer_b"]
            chosen, rejected = (a, b) if row["vote"] == "a" else (b, a)
            out.write(json.dumps({"prompt": row["question"], "chosen": chosen, "rejected": rejected}) + "\n")
            count += 1
    print(count, "pairs")


if __name__ == "__main__":
    main()
