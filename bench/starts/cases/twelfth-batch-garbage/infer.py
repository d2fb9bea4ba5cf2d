"""Batch inference on the held-out tickets with the merged support model."""
import argparse
import json
import logging
import time

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("infer")

SYSTEM = (
    "You are the support agent of Nordhavn Outdoor. Answer the customer briefly and politely, "
    "using only the ticket and the notes given."
)


def read_tickets(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def build_prompt(tokenizer, ticket):
    user = ticket["question"]
    if ticket.get("notes"):
        user += "\n\nNotes:\n" + ticket["notes"]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def batches(items, size):
    for i in range(0, len(items), size):
        yield items[i : i + size]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="nordhavn/llama-3.1-8b-support-merged")
    ap.add_argument("--data", default="heldout.jsonl")
    ap.add_argument("--out", default="predictions.jsonl")
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--max-new-tokens", type=int, default=160)
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, device_map="cuda:0")
    model.eval()

    tickets = read_tickets(args.data)
    log.info("%d tickets, batch size %d", len(tickets), args.batch_size)

    start = time.time()
    with open(args.out, "w", encoding="utf-8") as out:
        for n, batch in enumerate(tqdm(list(batches(tickets, args.batch_size)))):
            prompts = [build_prompt(tokenizer, t) for t in batch]
            enc = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
            lengths = enc.attention_mask.sum(dim=1).tolist()
            input_ids = enc.input_ids.to(model.device)
            with torch.inference_mode():
                generated = model.generate(
                    input_ids,
                    max_new_tokens=args.max_new_tokens,
                    do_sample=False,
                    temperature=None,
                    top_p=None,
                    pad_token_id=tokenizer.pad_token_id,
                )
            answers = tokenizer.batch_decode(generated[:, input_ids.shape[1] :], skip_special_tokens=True)
            log.info("batch %d: prompt tokens %s", n, lengths)
            for ticket, answer, length in zip(batch, answers, lengths):
                row = {
                    "id": ticket["id"],
                    "prompt": ticket["question"],
                    "prompt_tokens": length,
                    "prediction": answer.strip(),
                    "reference": ticket["answer"],
                }
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    log.info("done in %.1f s", time.time() - start)


if __name__ == "__main__":
    main()
