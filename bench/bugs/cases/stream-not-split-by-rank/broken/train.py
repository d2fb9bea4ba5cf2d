import os

import torch
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(rank)
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda())
rows = load_dataset(
    "parquet", data_files="encoded/*.parquet", split="train", streaming=True
).shuffle(seed=0)
loader = DataLoader(rows, batch_size=4, collate_fn=DataCollatorForSeq2Seq(tokenizer))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

model.train()
for batch in loader:
    model(**batch.to("cuda")).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
