import json

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, HfArgumentParser,
                          get_cosine_schedule_with_warmup, set_seed)

from config import Config


class Loop:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device(cfg.device)
        self.tok = AutoTokenizer.from_pretrained(cfg.base)
        model = AutoModelForCausalLM.from_pretrained(cfg.base, dtype=torch.bfloat16)
        lora = LoraConfig(r=cfg.rank, lora_alpha=2 * cfg.rank, lora_dropout=0.05,
                          target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(model, lora).to(self.device)

    def encode(self, row):
        tok = self.tok
        head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                       tokenize=False, add_generation_prompt=True)
        p = tok(head, add_special_tokens=False)["input_ids"]
        a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}

    def run(self):
        cfg = self.cfg
        with open(cfg.data) as fh:
            rows = [self.encode(json.loads(line)) for line in fh]
        loader = DataLoader(rows, batch_size=cfg.batch_size, shuffle=True,
                            collate_fn=DataCollatorForSeq2Seq(self.tok, label_pad_token_id=-100))
        opt = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=cfg.lr)
        total = len(loader) * cfg.epochs
        sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
        self.model.train()
        for epoch in range(cfg.epochs):
            for step, batch in enumerate(loader):
                batch = {k: v.to(self.device) for k, v in batch.items()}
                with torch.autocast(self.device.type, dtype=torch.bfloat16):
                    loss = self.model(**batch).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                if step % 20 == 0:
                    print(epoch, step, round(loss.item(), 4), flush=True)
        self.model.save_pretrained(cfg.out)
        self.tok.save_pretrained(cfg.out)


if __name__ == "__main__":
    set_seed(1)
    (config,) = HfArgumentParser(Config).parse_args_into_dataclasses()
    Loop(config).run()
