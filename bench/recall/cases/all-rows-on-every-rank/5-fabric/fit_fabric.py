import lightning as L
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


class Summarizer:
    def __init__(self, fabric, name="Qwen/Qwen2.5-1.5B-Instruct", lr=2e-4):
        self.fabric = fabric
        self.tok = AutoTokenizer.from_pretrained(name)
        net = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        net = get_peft_model(
            net, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        opt = torch.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=lr)
        self.model, self.optimizer = fabric.setup(net, opt)

    def _encode(self, row):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": "Summarize:\n" + row["dialogue"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        a = self.tok(head, add_special_tokens=False)["input_ids"]
        b = self.tok(row["summary"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    def train_loader(self, batch_size):
        ds = load_dataset("knkarthick/samsum", split="train").filter(lambda r: bool(r["dialogue"]))
        ds = ds.map(self._encode, remove_columns=ds.column_names)
        return DataLoader(
            ds,
            batch_size=batch_size,
            shuffle=True,
            collate_fn=DataCollatorForSeq2Seq(self.tok, label_pad_token_id=-100),
        )

    def fit(self, epochs=2, batch_size=8):
        loader = self.train_loader(batch_size)
        self.model.train()
        for epoch in range(epochs):
            for i, batch in enumerate(loader):
                batch = self.fabric.to_device(dict(batch))
                loss = self.model(**batch).loss
                self.fabric.backward(loss)
                self.fabric.clip_gradients(self.model, self.optimizer, max_norm=1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                if i % 25 == 0:
                    self.fabric.print(f"{epoch}/{i}: {loss.item():.4f}")


def main():
    fabric = L.Fabric(accelerator="cuda", devices=4, strategy="ddp", precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(0)
    job = Summarizer(fabric)
    job.fit()
    if fabric.global_rank == 0:
        job.model.module.save_pretrained("samsum-lora")
        job.tok.save_pretrained("samsum-lora")


if __name__ == "__main__":
    main()
