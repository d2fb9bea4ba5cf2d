import sys

from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.runs import arguments, of, pairs, table

tok = AutoTokenizer.from_pretrained(sys.argv[1])
TERMINATOR = "<|im_end|>"


def render(row):
    prompt = tok.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    return {
        "prompt": prompt,
        **{side: row[side][0]["content"] + TERMINATOR for side in ("chosen", "rejected")},
    }


trainer = DPOTrainer(
    of(tok),
    of(tok),
    args=arguments(DPOConfig),
    train_dataset=table([render(row) for row in pairs()]),
    processing_class=tok,
)
trainer.train()
