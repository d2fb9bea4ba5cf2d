import json
import sys

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


class Drafter:
    def __init__(self, conf):
        self.conf = conf
        self.tok = AutoTokenizer.from_pretrained(conf["checkpoint"], padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(
            conf["checkpoint"], dtype=getattr(torch, conf["dtype"]), device_map="auto"
        ).eval()
        self.decoding = GenerationConfig(
            **conf["decoding"],
            eos_token_id=self.tok.eos_token_id,
            pad_token_id=self.tok.pad_token_id,
        )

    def prompt(self, brief):
        return self.tok.apply_chat_template(
            [
                {"role": "system", "content": "You write short business mails from notes."},
                {"role": "user", "content": brief},
            ],
            tokenize=False,
            add_generation_prompt=True,
        )

    @torch.inference_mode()
    def draft(self, briefs):
        enc = self.tok([self.prompt(b) for b in briefs], padding=True, add_special_tokens=False, return_tensors="pt")
        enc = enc.to(self.model.device)
        out = self.model.generate(**enc, generation_config=self.decoding)
        return self.tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)


def main(path):
    conf = yaml.safe_load(open(path))
    drafter = Drafter(conf)
    rows = [json.loads(x) for x in open(conf["input_file"])]
    n = conf["batch_size"]
    with open(conf["output_file"], "w") as f:
        for i in range(0, len(rows), n):
            part = rows[i : i + n]
            for r, mail in zip(part, drafter.draft([r["brief"] for r in part])):
                f.write(json.dumps({**r, "mail": mail.strip()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
