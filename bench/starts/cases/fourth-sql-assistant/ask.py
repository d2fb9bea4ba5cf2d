import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = "runs/sql-mistral"

tok = AutoTokenizer.from_pretrained(OUT)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", dtype=torch.bfloat16, device_map="cuda")
model.resize_token_embeddings(len(tok), mean_resizing=False)
model = PeftModel.from_pretrained(model, OUT).eval()


def ask(schema, question):
    ids = tok.apply_chat_template(
        [{"role": "system", "content": f"You write PostgreSQL. Schema: {schema}"}, {"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)
    out = model.generate(**ids, max_new_tokens=200, do_sample=False, pad_token_id=tok.pad_token_id)
    return tok.decode(out[0, ids["input_ids"].shape[1] :])


print(ask("flights(no TEXT, origin TEXT, dest TEXT, delay_min INT, day DATE)", "Which flights had a delay above 90?"))
# -> SELECT * FROM flights WHERE delay_min > 90;<unk>ivelyively AscSELECT<s>>> Sito Asc Asc Asc Asc ... until 200 tokens
