from dataclasses import dataclass, field

import torch
from datasets import load_from_disk
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class Extra:
    dataset_path: str = field(default=None)


def main():
    parser = TrlParser((Extra, SFTConfig, ModelConfig))
    extra, sft, mc = parser.parse_args_and_config()

    tokenizer = AutoTokenizer.from_pretrained(mc.model_name_or_path)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        mc.model_name_or_path,
        dtype=torch.bfloat16,
        attn_implementation=mc.attn_implementation,
        use_cache=False,
    )

    data = load_from_disk(extra.dataset_path)
    trainer = SFTTrainer(
        model=model,
        args=sft,
        train_dataset=data["train"],
        processing_class=tokenizer,
        peft_config=get_peft_config(mc),
    )
    if trainer.accelerator.is_main_process:
        trainer.model.print_trainable_parameters()
    trainer.train()
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(sft.output_dir)


if __name__ == "__main__":
    main()
