"""Log-likelihood scores of the options of a multiple-choice test."""
import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer


@dataclass
class Item:
    question: str
    options: list
    gold: int

    @classmethod
    def read(cls, path):
        return [cls(**json.loads(line)) for line in Path(path).read_text().splitlines() if line]


class ChoiceScorer:
    def __init__(self, run_dir, device="cuda"):
        self.tok = AutoTokenizer.from_pretrained(run_dir, padding_side="right")
        self.model = AutoPeftModelForCausalLM.from_pretrained(run_dir, dtype=torch.bfloat16).to(device)
        self.model.eval()
        self.device = device

    def _rows(self, item):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": item.question}], tokenize=False, add_generation_prompt=True
        )
        start = len(self.tok(head, add_special_tokens=False)["input_ids"])
        texts = [head + option + self.tok.eos_token for option in item.options]
        return start, self.tok(texts, add_special_tokens=False, padding=True, return_tensors="pt")

    def scores(self, item):
        start, enc = self._rows(item)
        ids = enc["input_ids"].to(self.device)
        mask = enc["attention_mask"].to(self.device)
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        logp = F.log_softmax(logits[:, :-1].float(), dim=-1)
        picked = logp.gather(2, ids[:, 1:, None]).squeeze(2)
        weight = mask[:, 1:].clone()
        weight[:, : start - 1] = 0
        return ((picked * weight).sum(1) / weight.sum(1)).tolist()

    def accuracy(self, items):
        right = 0
        for item in items:
            s = self.scores(item)
            right += int(max(range(len(s)), key=s.__getitem__) == item.gold)
        return right / len(items)


if __name__ == "__main__":
    scorer = ChoiceScorer("runs/exam-lora")
    items = Item.read("data/exam_test.jsonl")
    print(f"{len(items)} questions, accuracy {scorer.accuracy(items):.3f}")
