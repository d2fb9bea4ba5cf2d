import torch


class Summarizer:
    def __init__(self, model, tokenizer, max_new_tokens=180, num_beams=1):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.gen = dict(max_new_tokens=max_new_tokens, num_beams=num_beams, do_sample=False)

    def encode(self, articles):
        convs = [[{"role": "user", "content": f"Summarize:\n{a}"}] for a in articles]
        return self.tokenizer.apply_chat_template(
            convs,
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        ).to(self.model.device)

    @torch.no_grad()
    def __call__(self, articles):
        enc = self.encode(articles)
        sequences = self.model.generate(**enc, **self.gen, pad_token_id=self.tokenizer.pad_token_id)
        return [self.tokenizer.decode(s, skip_special_tokens=True).strip() for s in sequences]
