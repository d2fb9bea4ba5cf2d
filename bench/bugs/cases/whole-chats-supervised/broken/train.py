from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

GENERATION = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
tok = tokenizer()
tok.chat_template = GENERATION
settings = arguments(SFTConfig, assistant_only_loss=False)
trainer = SFTTrainer(
    model(), args=settings, train_dataset=table(chats(turns=2)), processing_class=tok
)
trainer.train()
