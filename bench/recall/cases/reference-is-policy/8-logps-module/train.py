import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from logps import reference_logps, sequence_logps

NAME = "Qwen/Qwen2.5-3B-Instruct"
tok = AutoTokenizer.from_pretrained(NAME)


def one(prompt, answer):
    head = tok.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return (a + b)[:1024], ([-100] * len(a) + b)[:1024]


def collate(rows):
    seqs = [one(r["chosen"][:-1], r["chosen"][-1]["content"]) for r in rows]
    seqs += [one(r["rejected"][:-1], r["rejected"][-1]["content"]) for r in rows]
    w = max(len(s) for s, _ in seqs)
    return {
        "input_ids": torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]).cuda(),
        "attention_mask": torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]).cuda(),
        "labels": torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]).cuda(),
    }


def main():
    policy = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).cuda()
    policy = get_peft_model(policy, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    params = [p for p in policy.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=5e-6)
    ds = load_dataset("trl-lib/ultrafeedback_binarized", split="train").select(range(10000))
    policy.train()
    for step, batch in enumerate(DataLoader(ds, batch_size=2, shuffle=True, collate_fn=collate)):
        gain = sequence_logps(policy, batch) - reference_logps(policy, batch)
        win, lose = gain.chunk(2)
        loss = -F.logsigmoid(0.1 * (win - lose)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad()
        if step % 50 == 0:
            print(step, loss.item())
    policy.save_pretrained("out/dpo-lora")
    tok.save_pretrained("out/dpo-lora")


if __name__ == "__main__":
    main()
