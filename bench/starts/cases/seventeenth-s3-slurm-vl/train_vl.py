import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, Trainer, TrainingArguments

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
IMAGES = "/scratch/mkeller/forms/images"

processor = AutoProcessor.from_pretrained(MODEL, max_pixels=1280 * 28 * 28)
model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
    MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=r"model\.language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()

dataset = load_dataset("json", data_files="/scratch/mkeller/forms/train.jsonl", split="train")


def collate(rows):
    chats, prompts, images = [], [], []
    for row in rows:
        image = Image.open(f"{IMAGES}/{row['image']}").convert("RGB")
        user = {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "Extract all fields of this form as JSON."}],
        }
        answer = {"role": "assistant", "content": [{"type": "text", "text": row["fields"]}]}
        chats.append(processor.apply_chat_template([user, answer], tokenize=False))
        prompts.append(processor.apply_chat_template([user], tokenize=False, add_generation_prompt=True))
        images.append([image])
    batch = processor(text=chats, images=images, padding=True, padding_side="right", return_tensors="pt")
    asked = processor(text=prompts, images=images, padding=True, padding_side="right", return_tensors="pt")
    labels = batch["input_ids"].clone()
    for i, length in enumerate(asked["attention_mask"].sum(1).tolist()):
        labels[i, :length] = -100
    labels[batch["attention_mask"] == 0] = -100
    batch["labels"] = labels
    return batch


args = TrainingArguments(
    output_dir="out/vl-forms",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    dataloader_num_workers=8,
    dataloader_pin_memory=True,
    remove_unused_columns=False,
    logging_steps=5,
    save_steps=500,
    ddp_find_unused_parameters=False,
    report_to="none",
)
trainer = Trainer(model=model, args=args, train_dataset=dataset, data_collator=collate)
trainer.train()
trainer.save_model("out/vl-forms/final")
processor.save_pretrained("out/vl-forms/final")
