import json

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed
from trl import SFTConfig, SFTTrainer

MODEL_ID = "Qwen/Qwen2.5-7B-Instruct"
OUT = "qwen-insurance-qlora"
set_seed(42)

bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(MODEL_ID, quantization_config=bnb, dtype=torch.bfloat16, device_map={"": 0}, use_cache=False)
model.config.use_cache = False
model.generation_config.use_cache = False
tokenizer = AutoTokenizer.from_pretrained(MODEL_ID)


def convert(ex):
    return {
        "prompt": [{"role": "user", "content": ex["question"]}],
        "completion": [{"role": "assistant", "content": ex["answer"]}],
    }


data = load_dataset("json", data_files={"train": "train.jsonl", "dev": "dev.jsonl"})
data = data.map(convert, remove_columns=["question", "answer"])

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=data["train"],
    eval_dataset=data["dev"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        output_dir=OUT,
        learning_rate=2e-4,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        max_length=1536,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
    ),
)
trainer.train()
trainer.save_model(OUT)

model = trainer.model
model.eval()
tokenizer.padding_side = "left"
questions = [json.loads(line)["question"] for line in open("test.jsonl")]
with open("test_answers.jsonl", "w") as out:
    for i in range(0, len(questions), 16):
        part = questions[i : i + 16]
        enc = tokenizer.apply_chat_template(
            [[{"role": "user", "content": q}] for q in part],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        ).to(model.device)
        with torch.inference_mode():
            seq = model.generate(**enc, max_new_tokens=300, do_sample=False, temperature=None, top_p=None, top_k=None)
        for q, t in zip(part, tokenizer.batch_decode(seq[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)):
            out.write(json.dumps({"question": q, "answer": t.strip()}) + "\n")
