"""Accuracy of the complaint router on the held-out mails.

predictions.jsonl comes from vLLM (chat completions, temperature 0) on our merged Qwen3-4B fine-tune.
"""
import json
from collections import Counter

LABELS = ["billing", "delivery", "damaged goods", "cancellation", "technical", "other"]


def read(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            yield json.loads(line)


def normalise(text):
    return text.strip().lower().rstrip(".")


def main():
    hits, total = 0, 0
    wrong = Counter()
    for row in read("predictions.jsonl"):
        predicted, gold = normalise(row["prediction"]), normalise(row["reference"])
        total += 1
        if predicted == gold:
            hits += 1
        else:
            wrong[gold] += 1
    print(f"accuracy {hits / total:.3f} ({hits}/{total})")
    for label in LABELS:
        print(f"  missed {label:15s} {wrong[label]}")


if __name__ == "__main__":
    main()
