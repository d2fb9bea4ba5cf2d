import json

import torch
from datasets import load_dataset
from peft import LoraConfig
from switch import ready_for_inference
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL_ID = "Qwen/Qwen2.5-3B-Instruct"

tok = AutoTokenizer.from_pretrained(MODEL_ID)
model = AutoModelForCausalLM.from_pretrained(MODEL_ID, dtype=torch.bfloat16, device_map={"": 0})
model.config.use_cache = False

data = load_dataset("json", data_files={"train": "train.jsonl", "dev": "dev.jsonl"})
data = data.map(
    lambda e: {
        "prompt": [{"role": "user", "content": e["q"]}],
        "completion": [{"role": "assistant", "content": e["a"]}],
    },
    remove_columns=["q", "a"],
)
trainer = SFTTrainer(
    model=model,
    processing_class=tok,
    train_dataset=data["train"],
    eval_dataset=data["dev"],
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=SFTConfig(
        "out",
        learning_rate=1e-4,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        bf16=True,
        max_length=1024,
        warmup_steps=25,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=10,
    ),
)
trainer.train()
trainer.save_model("out")

model = ready_for_inference(trainer.model, tok)
questions = [json.loads(x)["q"] for x in open("test.jsonl")]
answers = []
for i in range(0, len(questions), 16):
    enc = tok.apply_chat_template(
        [[{"role": "user", "content": q}] for q in questions[i : i + 16]],
        add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True,
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=256, do_sample=False, temperature=None, top_p=None, top_k=None)
    answers += tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
json.dump(dict(zip(questions, answers)), open("out/answers.json", "w"), indent=1)
