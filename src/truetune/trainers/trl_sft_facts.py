"""TRL's SFTTrainer, release 1.16.0: the trainer that the tests run and compare fact by fact.

Unsloth patches it, so that its facts are those of `unsloth_facts`.
"""

from __future__ import annotations

from truetune.trainers.trainer_fact_types import (
    CutOfLongRows,
    Fact,
    Learning,
    LearningSwitch,
    TrainerFacts,
)

SFT = "trl/trainer/sft_trainer.py"
COLLATOR = "DataCollatorForLanguageModeling.torch_call"
PREPARE = "SFTTrainer._prepare_dataset"
FACTS = TrainerFacts(
    name="trl",
    family="TRL {release}",
    title="TRL {release} SFTTrainer",
    package="trl",
    release="1.16.0",
    proof="run",
    # The last pattern takes TRL's other trainers: a script that calls DPOTrainer is one of TRL too.
    calls=("trl.SFTTrainer", "trl.*.SFTTrainer", "trl.*Trainer"),
    learns=Fact(
        Learning(
            # It knows no columns of Alpaca's form: a script formats them into text or messages
            # first.
            {"chat": "all", "prompt-completion": "completion", "instruction": None, "text": "all"},
            (
                LearningSwitch(
                    "assistant_only_loss",
                    True,
                    frozenset(("chat", "prompt-completion")),
                    "assistant",
                ),
                LearningSwitch(
                    "completion_only_loss", False, frozenset(("prompt-completion",)), "all"
                ),
            ),
        ),
        SFT,
        "SFTTrainer.__init__ (completion_only_loss), build_labels",
    ),
    # Only with assistant_only_loss; without it the whole chat is learned.
    finds_answers_by=Fact("generation tags", SFT, f"{PREPARE} (return_assistant_tokens_mask)"),
    pads_masked_by=Fact("position", SFT, COLLATOR),
    pads_on=Fact("right", SFT, COLLATOR),
    # Harmless in the labels, which are masked by position; not so for code that masks by id
    # afterwards.
    missing_pad=Fact("eos", SFT, "SFTTrainer.__init__ (pad_token)"),
    clashing_pad=Fact("kept", SFT, "SFTTrainer.__init__ (pad_token)"),
    # Chats are ended by their template alone: one that writes no EOS trains none.
    appends_eos=Fact(frozenset(("prompt-completion", "text")), SFT, f"{PREPARE} (add_eos)"),
    doubles_bos=Fact(True, "trl/data_utils.py", "_tokenize"),
    stops_learned=Fact("turn", SFT, "build_labels"),
    # The end of a row goes, and with it the answer: a row that is left without a label is dropped.
    cut=Fact(CutOfLongRows(1024, "max_length", "end", "dropped"), SFT, f"{PREPARE} (truncate)"),
    template=Fact("tokenizer", "trl/data_utils.py", "_tokenize"),
    as_served=Fact(False, SFT, f"{PREPARE} (tokenize_fn)"),
    file_truncation=Fact("ignored", "trl/data_utils.py", "_tokenize"),
    prepares_model=Fact(False, SFT, "SFTTrainer.__init__"),
    packs=Fact(None, "trl/trainer/sft_config.py", "SFTConfig.packing"),
    shuffles=Fact(
        True, "transformers/trainer.py", "Trainer._get_train_sampler (train_sampling_strategy)"
    ),
)
