import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
DEVICE = "cuda"


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss_sum, correct, total = 0.0, 0, 0
    for batch in loader:
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        out = model(**batch)
        loss_sum += out.loss.item()
        labels = batch["labels"]
        preds = out.logits.argmax(dim=-1)
        correct += (preds == labels).sum().item()
        total += labels.numel()
    return loss_sum / len(loader), correct / total


def train_epoch(model, loader, opt):
    model.train()
    for i, batch in enumerate(loader):
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if i % 50 == 0:
            print(f"  {i}/{len(loader)} {loss.item():.4f}")


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).to(DEVICE)
    ds = load_from_disk("data/tokenized")
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=16, shuffle=True, collate_fn=collate)
    dev = DataLoader(ds["dev"], batch_size=16, collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0.0)
    for epoch in range(3):
        train_epoch(model, train, opt)
        loss, acc = evaluate(model, dev)
        print(f"epoch {epoch}  dev loss {loss:.4f}  dev token accuracy {acc:.3%}")
    model.save_pretrained("out/lora")
    tok.save_pretrained("out/lora")


if __name__ == "__main__":
    main()
