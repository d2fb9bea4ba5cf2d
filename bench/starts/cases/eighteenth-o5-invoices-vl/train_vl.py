import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from qwen_vl_utils import process_vision_info
from transformers import (
    AutoProcessor,
    BitsAndBytesConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from trl import SFTConfig, SFTTrainer

MODEL_ID = "Qwen/Qwen2.5-VL-7B-Instruct"
SYSTEM = "Read the invoice and return vendor, invoice_number, date, currency and total as JSON."

bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
    MODEL_ID,
    torch_dtype=torch.bfloat16,
    attn_implementation="flash_attention_2",
    quantization_config=bnb,
    device_map={"": 0},
)
model = prepare_model_for_kbit_training(
    model, use_gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}
)
processor = AutoProcessor.from_pretrained(MODEL_ID)
processor.tokenizer.padding_side = "right"



def to_chat(row):
    return [
        {"role": "system", "content": [{"type": "text", "text": SYSTEM}]},
        {"role": "user", "content": [{"type": "image", "image": row["image"]}, {"type": "text", "text": "Extract the fields."}]},
        {"role": "assistant", "content": [{"type": "text", "text": row["answer"]}]},
    ]


def collate(rows):
    chats = [to_chat(r) for r in rows]
    texts = [processor.apply_chat_template(c, tokenize=False).strip() for c in chats]
    images = [process_vision_info(c)[0] for c in chats]
    batch = processor(text=texts, images=images, return_tensors="pt", padding=True)
    labels = batch["input_ids"].clone()
    start = processor.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    for i, ids in enumerate(batch["input_ids"].tolist()):
        at = max(j for j in range(len(ids)) if ids[j : j + len(start)] == start) + len(start)
        labels[i, :at] = -100
    labels[batch["attention_mask"] == 0] = -100
    batch["labels"] = labels
    if collate.seen < 3:
        print({k: tuple(v.shape) for k, v in batch.items()}, batch["image_grid_thw"].tolist(), flush=True)
        collate.seen += 1
    return batch


collate.seen = 0

ds = load_dataset("json", data_files="invoices.jsonl", split="train")

args = SFTConfig(
    output_dir="out/invoices-vl",
    num_train_epochs=3,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    optim="paged_adamw_8bit",
    learning_rate=1e-4,
    warmup_ratio=0.03,
    lr_scheduler_type="cosine",
    bf16=True,
    max_length=None,
    logging_steps=5,
    save_strategy="epoch",
    remove_unused_columns=False,
    dataset_kwargs={"skip_prepare_dataset": True},
    report_to="none",
)
lora = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    task_type="CAUSAL_LM",
)
trainer = SFTTrainer(
    model=model, args=args, train_dataset=ds, data_collator=collate, peft_config=lora, processing_class=processor
)
trainer.train()
trainer.save_model("out/invoices-vl")
processor.save_pretrained("out/invoices-vl")
