import argparse
import json
import time

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT = """Extract from the inspection report: site, date, inspector, defects (list), deadline.
Answer with one JSON object.

{report}"""


def batches(rows, size):
    # similar lengths together, less padding
    rows = sorted(rows, key=lambda r: len(r["report"]))
    for i in range(0, len(rows), size):
        yield rows[i : i + size]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--max-new-tokens", type=int, default=256)
    args = p.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": 0},
    )
    model.eval()
    print("loaded", model.__class__.__name__, model.dtype, model.device)

    rows = [json.loads(line) for line in open(args.data)]
    print(len(rows), "reports")
    with open(args.out, "w") as out, torch.inference_mode():
        for n, batch in enumerate(tqdm(list(batches(rows, args.batch_size)))):
            texts = [
                tok.apply_chat_template(
                    [{"role": "user", "content": PROMPT.format(report=r["report"])}],
                    tokenize=False,
                    add_generation_prompt=True,
                    enable_thinking=False,
                )
                for r in batch
            ]
            enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
            t0 = time.time()
            gen = model.generate(
                **enc,
                max_new_tokens=args.max_new_tokens,
                do_sample=False,
                use_cache=True,
            )
            torch.cuda.synchronize()
            dt = time.time() - t0
            new = gen[:, enc["input_ids"].shape[1] :]
            n_new = int((new != tok.pad_token_id).sum())
            tqdm.write(
                f"batch {n}: prompt {enc['input_ids'].shape[1]} tok, {n_new} new tok, "
                f"{dt:.1f} s, {n_new / dt:.1f} tok/s"
            )
            for r, text in zip(batch, tok.batch_decode(new, skip_special_tokens=True)):
                out.write(json.dumps({"id": r["id"], "answer": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
