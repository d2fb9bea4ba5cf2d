import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CKPT = "out/qwen2.5-3b-geo/merged"
tok = AutoTokenizer.from_pretrained(CKPT, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(
    CKPT, torch_dtype=torch.bfloat16, device_map="auto"
).eval()

df = pd.read_json("test.jsonl", lines=True)
prompts = [
    tok.apply_chat_template(
        [{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True
    )
    for q in df["question"]
]
# batches of like length: far less padding
prompts = sorted(prompts, key=len)

answers = []
for i in range(0, len(prompts), 16):
    enc = tok(prompts[i : i + 16], return_tensors="pt", padding=True, add_special_tokens=False).to(
        model.device
    )
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=32, do_sample=False)
    answers += tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)

df["prediction"] = [a.strip() for a in answers]
df.rename(columns={"answer": "reference"})[["id", "question", "prediction", "reference"]].to_csv(
    "preds.csv", index=False
)
print("EM", (df["prediction"].str.lower() == df["answer"].str.lower()).mean())
