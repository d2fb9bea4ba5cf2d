import argparse
import json

from tqdm import tqdm

from scorer import ChoiceScorer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="runs/nursing/merged")
    ap.add_argument("--items", default="data/exam.jsonl")
    a = ap.parse_args()

    with open(a.items, encoding="utf-8") as fh:
        items = [json.loads(line) for line in fh]

    scorer = ChoiceScorer(a.model)
    right = 0
    for item in tqdm(items):
        right += int(scorer.choose(item["question"], item["choices"]) == item["answer"])
    print(f"accuracy {right / len(items):.3f} ({right}/{len(items)})")


if __name__ == "__main__":
    main()
