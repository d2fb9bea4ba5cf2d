import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, Trainer, TrainingArguments

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
ANSWER = "<|im_start|>assistant\n"


class FormCollator:
    def __init__(self, processor, images):
        self.processor = processor
        self.images = images
        self.marker = processor.tokenizer.encode(ANSWER, add_special_tokens=False)
        self.image_token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def __call__(self, rows):
        texts, pictures = [], []
        for row in rows:
            picture = Image.open(os.path.join(self.images, row["file"])).convert("RGB")
            picture = picture.resize((picture.width * 2 // 3, picture.height * 2 // 3), Image.LANCZOS)
            pictures.append(picture)
            messages = [
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row["question"]}]},
                {"role": "assistant", "content": [{"type": "text", "text": row["answer"]}]},
            ]
            texts.append(self.processor.apply_chat_template(messages, tokenize=False))
        batch = self.processor(text=texts, images=pictures, padding=True, return_tensors="pt")
        labels = batch["input_ids"].clone()
        labels[batch["attention_mask"] == 0] = -100
        labels[labels == self.image_token] = -100
        for i, ids in enumerate(batch["input_ids"].tolist()):
            labels[i, : self.start(ids)] = -100
        batch["labels"] = labels
        return batch

    def start(self, ids):
        n = len(self.marker)
        for k in range(len(ids) - n, -1, -1):
            if ids[k : k + n] == self.marker:
                return k + n
        raise ValueError("no assistant turn in the row")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--images")
    p.add_argument("--out")
    a = p.parse_args()

    processor = AutoProcessor.from_pretrained(MODEL, min_pixels=256 * 28 * 28, max_pixels=1280 * 28 * 28)
    processor.tokenizer.padding_side = "right"
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
            task_type="CAUSAL_LM",
        ),
    )
    model.print_trainable_parameters()

    rows = load_dataset("json", data_files=a.data, split="train")
    args = TrainingArguments(
        output_dir=a.out,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=10,
        save_steps=500,
        save_total_limit=2,
        dataloader_num_workers=8,
        dataloader_pin_memory=True,
        remove_unused_columns=False,
        report_to="none",
    )
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=FormCollator(processor, a.images))
    trainer.train()
    trainer.save_model(a.out)
    processor.save_pretrained(a.out)


if __name__ == "__main__":
    main()
