import argparse
import json
import os

import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch.utils.data import Dataset
from transformers import (
    AutoProcessor,
    Qwen2_5_VLForConditionalGeneration,
    Trainer,
    TrainingArguments,
)

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"

ap = argparse.ArgumentParser()
ap.add_argument("--images", required=True)
ap.add_argument("--train", required=True)
ap.add_argument("--out", required=True)
cli = ap.parse_args()

processor = AutoProcessor.from_pretrained(
    MODEL, min_pixels=256 * 28 * 28, max_pixels=1024 * 28 * 28
)
processor.tokenizer.padding_side = "right"
IGNORED = [
    processor.tokenizer.convert_tokens_to_ids(t)
    for t in ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>")
]
HEADER = processor.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)


class Invoices(Dataset):
    def __init__(self, path, root):
        self.root = root
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        image = Image.open(os.path.join(self.root, row["image"])).convert("RGB")
        messages = [
            {
                "role": "user",
                "content": [
                    {"type": "image"},
                    {"type": "text", "text": "Extract the invoice as JSON."},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "text", "text": json.dumps(row["fields"], ensure_ascii=False)}],
            },
        ]
        return {"image": image, "messages": messages}


def collate(batch):
    texts = [processor.apply_chat_template(b["messages"], tokenize=False) for b in batch]
    enc = processor(
        text=texts, images=[b["image"] for b in batch], padding=True, return_tensors="pt"
    )
    labels = enc["input_ids"].clone()
    labels[enc["attention_mask"] == 0] = -100
    for tid in IGNORED:
        labels[labels == tid] = -100
    # loss on the answer only
    for row, ids in zip(labels, enc["input_ids"].tolist()):
        for k in range(len(ids) - len(HEADER), -1, -1):
            if ids[k : k + len(HEADER)] == HEADER:
                row[: k + len(HEADER)] = -100
                break
    enc["labels"] = labels
    return enc


model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
    MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
model.config.use_cache = False
model = get_peft_model(
    model,
    LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        task_type="CAUSAL_LM",
        target_modules=r"model\.language_model.*\.(q|k|v|o|gate|up|down)_proj",
    ),
)
model.enable_input_require_grads()

args = TrainingArguments(
    output_dir=cli.out,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    ddp_find_unused_parameters=False,
    dataloader_num_workers=8,
    dataloader_pin_memory=True,
    dataloader_prefetch_factor=2,
    remove_unused_columns=False,
    logging_steps=5,
    save_steps=500,
    save_total_limit=2,
    report_to="none",
)

Trainer(
    model=model,
    args=args,
    train_dataset=Invoices(cli.train, cli.images),
    data_collator=collate,
).train()
