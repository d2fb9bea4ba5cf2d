"""transformers' Trainer with `DataCollatorForLanguageModeling(mlm=False)`, release 5.23.0.

The Trainer renders and encodes nothing: the script does, and the collator makes the labels. With another collator the
facts on labels do not hold; `checks.detect_trainer_and_apply_facts` sees which one a script names.
"""

from __future__ import annotations

from truetune.trainers.trainer_fact_types import CutOfLongRows, Fact, Learning, TrainerFacts

COLLATORS = "transformers/data/data_collator.py"
COLLATOR = "DataCollatorForLanguageModeling.torch_call"
TRAINER = "transformers/trainer.py"
ENCODE = "TokenizersBackend._encode_plus"
TOKENIZERS = "transformers/tokenization_utils_tokenizers.py"
FACTS = TrainerFacts(
    name="transformers",
    family="transformers {release}",
    title="transformers {release} Trainer",
    package="transformers",
    release="5.23.0",
    proof="run",
    calls=("transformers.Trainer", "transformers.Seq2SeqTrainer"),
    # The collator copies the ids into the labels: prompts are learned unless the script masks them.
    learns=Fact(
        Learning(dict.fromkeys(("chat", "prompt-completion", "instruction", "text"), "all")),
        COLLATORS,
        COLLATOR,
    ),
    finds_answers_by=Fact(None, COLLATORS, COLLATOR),
    # Each label that equals the pad token becomes -100: with EOS as pad, the end of every answer is
    # lost.
    pads_masked_by=Fact("id", COLLATORS, COLLATOR),
    pads_on=Fact("tokenizer", COLLATORS, "pad_without_fast_tokenizer_warning"),
    missing_pad=Fact("error", COLLATORS, "pad_without_fast_tokenizer_warning"),
    clashing_pad=Fact("kept", COLLATORS, COLLATOR),
    # It encodes nothing, and so appends nothing.
    appends_eos=Fact(frozenset(), TRAINER, "Trainer"),
    doubles_bos=Fact(True, TOKENIZERS, ENCODE),
    stops_learned=Fact("turn", COLLATORS, COLLATOR),
    # The script calls the tokenizer; without max_length and truncation nothing is cut.
    cut=Fact(
        CutOfLongRows(None, "max_length of the tokenizer call", "end", "kept"), TRAINER, "Trainer"
    ),
    template=Fact("tokenizer", TRAINER, "Trainer"),
    as_served=Fact(False, TRAINER, "Trainer"),
    file_truncation=Fact("ignored", TOKENIZERS, "TokenizersBackend.set_truncation_and_padding"),
    prepares_model=Fact(False, TRAINER, "Trainer"),
    packs=Fact(None, TRAINER, "Trainer"),
    shuffles=Fact(True, TRAINER, "Trainer._get_train_sampler (train_sampling_strategy)"),
    collator="DataCollatorForLanguageModeling",
)
