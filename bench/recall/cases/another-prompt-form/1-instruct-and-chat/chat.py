import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

ADAPTER = "out/helpdesk"

tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoPeftModelForCausalLM.from_pretrained(ADAPTER, dtype=torch.bfloat16, device_map="auto")
model.eval()


def ask(question, max_new_tokens=300):
    messages = [{"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=True, temperature=0.3, top_p=0.9)
    return tokenizer.decode(out[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()


def main():
    print("Helpdesk assistant, empty line to leave.")
    while True:
        question = input("> ").strip()
        if not question:
            break
        print(ask(question), "\n")


if __name__ == "__main__":
    main()
