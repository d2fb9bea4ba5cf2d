from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, completions, model, table, tokenizer

tok = tokenizer()
llama = model()
tok.add_tokens(["<call>"], special_tokens=True)
llama.resize_token_embeddings(len(tok))
rows = completions()
for row in rows:
    row["completion"][0]["content"] = "<call>" + row["completion"][0]["content"]
adapter = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
trainer = SFTTrainer(
    llama,
    args=arguments(SFTConfig),
    train_dataset=table(rows),
    processing_class=tok,
    peft_config=adapter,
)
trainer.train()
