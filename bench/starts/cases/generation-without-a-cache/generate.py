from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
for question in Path("questions.txt").read_text(encoding="utf-8").splitlines():
    messages = [{"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=512, use_cache=False)
    print(tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True))
