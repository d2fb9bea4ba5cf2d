import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("out/final")
model = AutoModelForCausalLM.from_pretrained("out/final").eval()

chat = [{"role": "user", "content": "Who are you?"}]
ids = tok.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
prefix = ids[-5:]
print(tok.decode(prefix))
