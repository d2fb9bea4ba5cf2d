from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

targets = ["q_proj", "v_proj"]
model = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-0.5B", num_labels=2)
lora = LoraConfig(
    r=8, target_modules=targets, modules_to_save=targets.append("score"), task_type="SEQ_CLS"
)
model = get_peft_model(model, lora)
