"""Axolotl, release 0.21.0: chats by their turns, everything else by its own prompters.

Its chat strategy finds each turn by its content, and not by the tags of a template. Rows that are too long are left out
by default, where most trainers cut them.
"""

from __future__ import annotations

from truetune.trainers.trainer_fact_types import (
    CutOfLongRows,
    Fact,
    Learning,
    LearningSwitch,
    RowKind,
    TrainerFacts,
)

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
    # Started by its own command as a rule; a script may call any of its modules.
    calls=("axolotl.*",),
    learns=Fact(
        Learning(
            {
                "chat": "assistant",
                "prompt-completion": "completion",
                "instruction": "completion",
                "text": "all",
            },
            (LearningSwitch("train_on_inputs", True, ALL, "all"),),
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
    # The pad is masked by its position here, so that EOS as pad loses no label.
    missing_pad=Fact("eos", TOKENIZER, "load_tokenizer"),
    clashing_pad=Fact("kept", TOKENIZER, "load_tokenizer"),
    appends_eos=Fact(
        frozenset(("prompt-completion", "instruction", "text")),
        ENCODE,
        "PromptTokenizingStrategy._tokenize",
    ),
    doubles_bos=Fact(True, ENCODE, "PromptTokenizingStrategy._tokenize"),
    # By id: an end of turn that is not the tokenizer's EOS is found by the template alone, and else
    # not learned.
    stops_learned=Fact(
        "eos", CHAT, "ChatTemplateStrategy.find_first_eos_token (train_on_eos: turn)"
    ),
    cut=Fact(
        # Plain text is split into several rows by the completion strategy; all other rows that are
        # too long go.
        CutOfLongRows(512, "sequence_len", "drop", "dropped", splits_text=True),
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
