import sys

from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, of, pairs, table

tok = AutoTokenizer.from_pretrained(sys.argv[1])


def render(row):
    prompt = tok.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    begin = ""
    sides = {
        side: begin + row[side][0]["content"] + tok.eos_token for side in ("chosen", "rejected")
    }
    return {"prompt": prompt.removeprefix(tok.bos_token), **sides}


trainer = DPOTrainer(
    of(tok),
    of(tok),
    args=arguments(DPOConfig),
    train_dataset=table([render(row) for row in pairs()]),
    processing_class=tok,
)
trainer.train()
