"""Axolotl, release 0.21.0."""

from __future__ import annotations

from truetune.trainers.trainer_facts import Cut, Fact, Learning, RowKind, Switch, TrainerFacts

CHAT = "axolotl/prompt_strategies/chat_template.py"
ENCODE = "axolotl/prompt_tokenizers.py"
COLLATOR = "axolotl/utils/collators/batching.py"
TOKENIZER = "axolotl/loaders/tokenizer.py"
ALL: frozenset[RowKind] = frozenset(("chat", "prompt-completion", "instruction"))
FACTS = TrainerFacts(
    name="axolotl",
    family="Axolotl {release}",
    title="Axolotl {release}",
    package="axolotl",
    release="0.21.0",
    proof="read",
    calls=("axolotl.*",),
    learns=Fact(
        Learning(
            {
                "chat": "assistant",
                "prompt-completion": "completion",
                "instruction": "completion",
                "text": "all",
            },
            (Switch("train_on_inputs", True, ALL, "all"),),
        ),
        CHAT,
        "StrategyLoader._get_strategy_params (roles_to_train),"
        " ChatTemplateStrategy._tokenize_single_prompt",
    ),
    finds_answers_by=Fact("content", CHAT, "ChatTemplateStrategy.find_turn"),
    pads_masked_by=Fact(
        "position", COLLATOR, "DataCollatorForSeq2Seq.__call__ (label_pad_token_id)"
    ),
    pads_on=Fact("tokenizer", COLLATOR, "DataCollatorForSeq2Seq.__call__"),
    missing_pad=Fact("eos", TOKENIZER, "load_tokenizer"),
    clashing_pad=Fact("kept", TOKENIZER, "load_tokenizer"),
    appends_eos=Fact(
        frozenset(("prompt-completion", "instruction", "text")),
        ENCODE,
        "PromptTokenizingStrategy._tokenize",
    ),
    doubles_bos=Fact(True, ENCODE, "PromptTokenizingStrategy._tokenize"),
    stops_learned=Fact(
        "eos", CHAT, "ChatTemplateStrategy.find_first_eos_token (train_on_eos: turn)"
    ),
    cut=Fact(
        Cut(512, "sequence_len", "drop", "dropped", splits_text=True),
        "axolotl/utils/schemas/config.py",
        "AxolotlInputConfig.sequence_len, excess_length_strategy;"
        " CompletionPromptTokenizingStrategy",
    ),
    template=Fact(
        "tokenizer",
        "axolotl/utils/schemas/datasets.py",
        "SFTDataset.chat_template (tokenizer_default)",
    ),
    as_served=Fact(False, CHAT, "ChatTemplateStrategy._tokenize_single_prompt"),
    file_truncation=Fact("ignored", TOKENIZER, "load_tokenizer"),
    prepares_model=Fact(False, TOKENIZER, "load_tokenizer"),
    packs=Fact(None, "axolotl/utils/schemas/config.py", "AxolotlInputConfig.sample_packing"),
    shuffles=Fact(
        True,
        "axolotl/core/trainers/base.py",
        "AxolotlTrainer._get_train_sampler (curriculum_sampling)",
    ),
)
