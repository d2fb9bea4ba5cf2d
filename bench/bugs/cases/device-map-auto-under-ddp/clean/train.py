import os

import torch
from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

NAME = "Qwen/Qwen2.5-7B"

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")

model = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16", device_map={"": rank})
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="out", learning_rate=1e-5, bf16=True, ddp_find_unused_parameters=False
    ),
    train_dataset=load_from_disk("encoded"),
    data_collator=DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(NAME)),
)
trainer.train()
