import sys

from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, of, table

tok = AutoTokenizer.from_pretrained(sys.argv[1])


def render(row):
    prompt = tok.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    whole = tok.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
    return {
        "prompt": prompt.removeprefix(tok.bos_token),
        "completion": whole.removeprefix(prompt).rstrip(),
    }


trainer = SFTTrainer(
    of(tok),
    args=arguments(SFTConfig),
    train_dataset=table([render(row) for row in completions()]),
    processing_class=tok,
)
trainer.train()
