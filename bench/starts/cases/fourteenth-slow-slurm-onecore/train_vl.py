import argparse
import json
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
PROMPT = "Read the receipt and return merchant, date, total and currency as JSON."


class Receipts(Dataset):
    def __init__(self, path, images):
        self.rows = [json.loads(line) for line in open(path)]
        self.images = Path(images)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        image = Image.open(self.images / row["file"]).convert("RGB")
        return image, json.dumps(row["fields"], ensure_ascii=False)


class Collate:
    def __init__(self, processor):
        self.processor = processor

    def __call__(self, batch):
        texts, prompts, images = [], [], []
        for image, answer in batch:
            user = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]
            prompt = self.processor.apply_chat_template(user, tokenize=False, add_generation_prompt=True)
            prompts.append(prompt)
            texts.append(prompt + answer + "<|im_end|>\n")
            images.append(image)
        enc = self.processor(text=texts, images=images, padding=True, return_tensors="pt")
        labels = enc["input_ids"].clone()
        labels[enc["attention_mask"] == 0] = -100
        for i, (prompt, image) in enumerate(zip(prompts, images)):
            n = self.processor(text=[prompt], images=[image], return_tensors="pt")["input_ids"].shape[1]
            labels[i, :n] = -100
        enc["labels"] = labels
        return enc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--images", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--grad_accum", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    args = p.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum)
    set_seed(7)
    processor = AutoProcessor.from_pretrained(MODEL, max_pixels=1280 * 28 * 28)
    processor.tokenizer.padding_side = "right"
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
        target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
    ))

    loader = DataLoader(
        Receipts(args.data, args.images), batch_size=args.batch_size, shuffle=True, drop_last=True,
        collate_fn=Collate(processor), num_workers=8, pin_memory=True, persistent_workers=True,
    )
    optimizer = torch.optim.AdamW([q for q in model.parameters() if q.requires_grad], lr=args.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = args.epochs * len(loader) // args.grad_accum
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    step, t_data, t_comp = 0, 0.0, 0.0
    model.train()
    for epoch in range(args.epochs):
        mark = time.perf_counter()
        for batch in loader:
            t_data += time.perf_counter() - mark
            mark = time.perf_counter()
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                torch.cuda.synchronize()
                t_comp += time.perf_counter() - mark
                if step % 10 == 0:
                    accelerator.print(
                        f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e} "
                        f"data {t_data / 10:.2f}s compute {t_comp / 10:.2f}s"
                    )
                    t_data = t_comp = 0.0
            else:
                t_comp += time.perf_counter() - mark
            mark = time.perf_counter()

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.out)
        processor.save_pretrained(args.out)


if __name__ == "__main__":
    main()
