import torch


def only_reply(enc, sequences):
    width = enc["input_ids"].shape[-1]
    return sequences[..., width:]


@torch.inference_mode()
def run(model, tok, chats, **gen):
    enc = tok.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    outputs = model.generate(**enc, **gen)
    outputs = only_reply(enc, outputs)
    return tok.batch_decode(outputs, skip_special_tokens=True)
