"""Label the tickets of last quarter with the tuned model.

    python classify_tickets.py tickets_q3.csv labels_q3.csv 2>&1 | tee run.log
"""
import csv
import sys

import torch
from tqdm import tqdm
from transformers import AutoTokenizer, pipeline

MODEL = "/srv/models/tickets-qwen2.5-3b-merged"
QUEUES = ["billing", "delivery", "warranty", "account", "legal", "other"]
SYSTEM = "Sort the ticket into one queue: " + ", ".join(QUEUES) + ". Answer with the name of the queue."


def prompt(tokenizer, text: str) -> str:
    return tokenizer.apply_chat_template(
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text[:4000]}],
        tokenize=False,
        add_generation_prompt=True,
    )


def main(src: str, dst: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    pipe = pipeline(
        "text-generation",
        model=MODEL,
        tokenizer=tokenizer,
        dtype=torch.bfloat16,
        device=0,
    )

    with open(src, newline="", encoding="utf-8") as f:
        tickets = list(csv.DictReader(f))
    print(f"{len(tickets)} tickets")

    with open(dst, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["ticket_id", "queue"])
        for ticket in tqdm(tickets):
            result = pipe(
                prompt(tokenizer, ticket["subject"] + "\n\n" + ticket["body"]),
                max_new_tokens=8,
                do_sample=False,
                return_full_text=False,
            )
            label = result[0]["generated_text"].strip().lower()
            writer.writerow([ticket["ticket_id"], label if label in QUEUES else "other"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
