import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from kto import KTO

BASE = "Qwen/Qwen2.5-0.5B-Instruct"
tok = AutoTokenizer.from_pretrained(BASE)


def pack(prompts, completions, flags):
    seqs = []
    for p, c in zip(prompts, completions):
        head = tok.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True)
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(c + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        seqs.append(((a + b)[:1024], ([-100] * len(a) + b)[:1024]))
    w = max(len(s) for s, _ in seqs)
    return {
        "input_ids": torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]).cuda(),
        "attention_mask": torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]).cuda(),
        "labels": torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]).cuda(),
        "good": torch.tensor(flags).cuda(),
    }


def main():
    policy = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).cuda().train()
    algo = KTO(policy)
    ds = load_dataset("json", data_files="thumbs.jsonl", split="train")
    loader = DataLoader(ds, batch_size=8, shuffle=True, drop_last=True, collate_fn=list)
    opt = torch.optim.AdamW(policy.parameters(), lr=5e-7)
    for step, rows in enumerate(loader):
        prompts = [r["prompt"] for r in rows]
        answers = [r["completion"] for r in rows]
        flags = [bool(r["label"]) for r in rows]
        loss = algo.loss(pack(prompts, answers, flags), pack(prompts, answers[1:] + answers[:1], flags))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, loss.item())
    policy.save_pretrained("out/kto")
    tok.save_pretrained("out/kto")


if __name__ == "__main__":
    main()
