import torch
import torch.nn.functional as F
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE, BETA = "Qwen/Qwen2.5-3B-Instruct", 0.1


def collate_pairs(tok, max_len=1024):
    def one(prompt, answer):
        head = tok.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return (a + b)[:max_len], ([-100] * len(a) + b)[:max_len]

    def fn(rows):
        seqs = [one(r["chosen"][:-1], r["chosen"][-1]["content"]) for r in rows]
        seqs += [one(r["rejected"][:-1], r["rejected"][-1]["content"]) for r in rows]
        w = max(len(s) for s, _ in seqs)
        ids = torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs])
        lab = torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs])
        mask = torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs])
        return {"input_ids": ids, "attention_mask": mask, "labels": lab}

    return fn


def pair_logps(net, batch):
    logits = net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].float()
    labels = batch["labels"][:, 1:]
    keep = labels != -100
    lp = torch.gather(logits.log_softmax(-1), 2, labels.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
    lp = (lp * keep).sum(-1)
    return lp.chunk(2)


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    ds = load_dataset("trl-lib/ultrafeedback_binarized", split="train")
    loader = DataLoader(ds, batch_size=2, shuffle=True, collate_fn=collate_pairs(tok))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    policy = accelerator.unwrap_model(model)

    model.train()
    for step, batch in enumerate(loader):
        with torch.no_grad(), policy.disable_adapter():
            ref_w, ref_l = pair_logps(policy, batch)
        pi_w, pi_l = pair_logps(policy, batch)
        margin = (pi_w - ref_w) - (pi_l - ref_l)
        loss = -F.logsigmoid(BETA * margin).mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            accelerator.print(step, loss.item(), (margin > 0).float().mean().item())

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out/dpo")
        tok.save_pretrained("out/dpo")


if __name__ == "__main__":
    main()
