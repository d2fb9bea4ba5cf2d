import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("ckpt")
config = AutoConfig.from_pretrained("HuggingFaceTB/SmolLM2-360M-Instruct")
model = AutoModelForCausalLM.from_config(config)
state = torch.load("ckpt/epoch2.pt", map_location="cpu", weights_only=True)
model.load_state_dict(state, strict=False)
model.cuda().eval()

while True:
    q = input("> ")
    ids = tok.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True, return_tensors="pt", return_dict=True).to("cuda")
    with torch.inference_mode():
        out = model.generate(**ids, max_new_tokens=60, do_sample=False)
    print(tok.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True))
