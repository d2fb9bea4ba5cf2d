import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed


class Tuner:
    def __init__(self, cfg):
        dist.init_process_group(backend="nccl")
        self.cfg = cfg
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        set_seed(cfg["seed"])
        self.tok = AutoTokenizer.from_pretrained(cfg["model"])
        base = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
        self.model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **cfg["lora"])).to(self.device)
        self.weights = [w for w in self.model.parameters() if w.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=float(cfg["lr"]))

    def loader(self, ds):
        self.sampler = DistributedSampler(ds, shuffle=True, seed=self.cfg["seed"])
        return DataLoader(
            ds,
            batch_size=self.cfg["batch_size"],
            sampler=self.sampler,
            collate_fn=DataCollatorForSeq2Seq(self.tok),
        )

    def step(self, batch):
        loss = self.model(**batch.to(self.device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def fit(self, ds):
        loader = self.loader(ds)
        self.model.train()
        for epoch in range(self.cfg["epochs"]):
            self.sampler.set_epoch(epoch)
            for i, batch in enumerate(loader):
                loss = self.step(batch)
                if self.rank == 0 and i % 20 == 0:
                    print(f"epoch {epoch} batch {i}/{len(loader)} loss {loss.item():.4f}", flush=True)
        if self.rank == 0:
            self.model.save_pretrained(self.cfg["out"])
            self.tok.save_pretrained(self.cfg["out"])
        dist.barrier()
        dist.destroy_process_group()
