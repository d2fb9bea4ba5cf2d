import json

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out/final", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("out/final", dtype="bfloat16", device_map="cuda")
model.eval()

with open("prompts.json") as file:
    prompts = json.load(file)
answers = []
for start in range(0, len(prompts), 16):
    batch = tokenizer(prompts[start : start + 16], return_tensors="pt", padding=True).to("cuda")
    output = model.generate(**batch, max_new_tokens=256, do_sample=False, use_cache=False)
    answers += tokenizer.batch_decode(
        output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
    )
print(len(answers))
