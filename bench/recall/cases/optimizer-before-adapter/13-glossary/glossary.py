import sys

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed


class GlossaryTuner:
    def __init__(self, name, data, out):
        set_seed(5)
        self.out = out
        self.tok = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda")
        self.loader = self.make_loader(data)
        self.add_adapter()
        self.optimizer = self.make_optimizer()

    def make_optimizer(self):
        weights = [p for p in self.model.parameters() if p.requires_grad]
        return torch.optim.AdamW(weights, lr=1.5e-4, weight_decay=0.0)

    def add_adapter(self):
        self.model = get_peft_model(
            self.model,
            LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        )

    def encode(self, row):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": f"Define: {row['term']}"}],
            tokenize=False,
            add_generation_prompt=True,
        )
        a = self.tok(head, add_special_tokens=False)["input_ids"]
        b = self.tok(head + row["definition"] + self.tok.eos_token, add_special_tokens=False)["input_ids"]
        return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}

    def make_loader(self, data):
        ds = load_dataset("json", data_files=data, split="train")
        ds = ds.map(self.encode, remove_columns=ds.column_names)
        return DataLoader(ds, batch_size=8, shuffle=True, collate_fn=DataCollatorForSeq2Seq(self.tok))

    def fit(self, epochs=3):
        self.model.train()
        for epoch in range(epochs):
            for i, batch in enumerate(self.loader):
                loss = self.model(**batch.to("cuda")).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                if i % 25 == 0:
                    print(epoch, i, round(loss.item(), 4))
        self.model.save_pretrained(self.out)
        self.tok.save_pretrained(self.out)


if __name__ == "__main__":
    GlossaryTuner("Qwen/Qwen2.5-0.5B-Instruct", sys.argv[1], sys.argv[2]).fit()
