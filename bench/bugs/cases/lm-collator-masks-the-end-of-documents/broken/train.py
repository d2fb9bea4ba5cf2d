import sys

from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

from bench.bugs.inputs.runs import arguments, documents, of, table

tok = AutoTokenizer.from_pretrained(sys.argv[1], padding_side="right")
tok.pad_token = tok.eos_token
rows = [{"input_ids": tok(text + tok.eos_token)["input_ids"]} for text in documents()]
trainer = Trainer(
    of(tok),
    arguments(),
    data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
    train_dataset=table(rows),
    processing_class=tok,
)
trainer.train()
