"""chosen = answers of the big model, rejected = answers of our SFT model, same questions."""
import json
import random

SEED = 5


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def main():
    # both files were generated from questions.txt, in the same order
    strong = read("gen/strong.jsonl")
    weak = read("gen/sft.jsonl")
    print(len(strong), "strong", len(weak), "sft")

    # answers that hit the token limit are cut in the middle of a sentence
    strong = [row for row in strong if row["finish_reason"] == "stop"]
    weak = [row for row in weak if row["finish_reason"] == "stop"]

    pairs = []
    for good, bad in zip(strong, weak):
        if good["answer"].strip() == bad["answer"].strip():
            continue
        pairs.append(
            {
                "prompt": [{"role": "user", "content": good["question"]}],
                "chosen": [{"role": "assistant", "content": good["answer"].strip()}],
                "rejected": [{"role": "assistant", "content": bad["answer"].strip()}],
            }
        )

    with open("pairs.jsonl", "w") as file:
        for pair in pairs:
            file.write(json.dumps(pair) + "\n")
    print(len(pairs), "pairs written")


if __name__ == "__main__":
    main()
