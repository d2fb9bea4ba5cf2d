import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen2.5-0.5B-Instruct"


def load(path="ckpt/final.pt"):
    tok = AutoTokenizer.from_pretrained("ckpt")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(NAME))
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state, strict=False)
    return tok, model.to("cuda", dtype=torch.bfloat16).eval()


@torch.inference_mode()
def reply(tok, model, question):
    enc = tok.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    ).to("cuda")
    out = model.generate(**enc, max_new_tokens=120, do_sample=False, eos_token_id=tok.convert_tokens_to_ids("<|im_end|>"))
    return tok.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)


if __name__ == "__main__":
    tok, model = load()
    for q in sys.argv[1:]:
        print(">>>", q)
        print(reply(tok, model, q))
        print()
