import torch


class GenerationRunner:
    def __init__(self, model, tok, max_new_tokens):
        self.model = model.eval()
        self.tok = tok
        self.max_new_tokens = max_new_tokens

    @torch.inference_mode()
    def run(self, loader):
        texts = []
        for batch in loader:
            batch = {k: v.to(self.model.device) for k, v in batch.items()}
            ids = self.model.generate(
                **batch,
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
            )
            new = ids[:, batch["input_ids"].shape[1] :]
            texts += [t.strip() for t in self.tok.batch_decode(new, skip_special_tokens=True)]
        return texts
