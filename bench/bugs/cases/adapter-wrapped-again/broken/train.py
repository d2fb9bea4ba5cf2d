from datasets import load_dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-0.5B-Instruct"

base = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16")
model = PeftModel.from_pretrained(base, "stage-1/adapter", is_trainable=True)
model = get_peft_model(
    model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(output_dir="stage-2", max_length=2048, learning_rate=1e-4, bf16=True),
    train_dataset=load_dataset("json", data_files="chats.jsonl", split="train"),
    processing_class=AutoTokenizer.from_pretrained(BASE),
)
trainer.train()
