"""Unsloth, release 2026.10.9, with TRL's SFTTrainer as it rewrites it.

It prepares the rows itself (`sft_prepare_dataset`), and differs from TRL in this: text gets no EOS.
"""

from __future__ import annotations

from truetune.trainers.trainer_fact_types import CutOfLongRows, Fact, Learning, TrainerFacts
from truetune.trainers.trl_sft_facts import FACTS as TRL

ROWS = "unsloth_zoo/dataset_utils.py"
PREPARE = "sft_prepare_dataset"
TOKENIZER = "unsloth_zoo/tokenizer_utils.py"
FACTS = TrainerFacts(
    name="unsloth",
    family="Unsloth {release}",
    title="Unsloth {release}",
    package="unsloth",
    release="2026.10.9",
    proof="read",
    calls=("unsloth.*", "unsloth_zoo.*"),
    # TRL's own rules: the settings are those of its SFTConfig, and only the preparation of rows is
    # replaced.
    learns=Fact(Learning(*TRL.learns.value), ROWS, PREPARE),
    finds_answers_by=Fact("generation tags", ROWS, f"{PREPARE} (_tokenize_messages)"),
    pads_masked_by=Fact("position", ROWS, f"{PREPARE} (TRL's collator; DataCollatorForSeq2Seq)"),
    pads_on=Fact("tokenizer", ROWS, PREPARE),
    missing_pad=Fact("chosen", TOKENIZER, "patch_tokenizer"),
    # It looks for a reserved token of the vocabulary, and adds one only where there is none.
    clashing_pad=Fact("replaced", TOKENIZER, "patch_tokenizer"),
    # Plain text gets none: its notebooks tell users to append EOS in their own formatting function.
    appends_eos=Fact(frozenset(("prompt-completion",)), ROWS, f"{PREPARE} (_tokenize_pc)"),
    doubles_bos=Fact(False, ROWS, f"{PREPARE} (add_special_tokens)"),
    stops_learned=Fact("turn", ROWS, PREPARE),
    cut=Fact(CutOfLongRows(1024, "max_length", "end", "kept"), ROWS, PREPARE),
    template=Fact("tokenizer", ROWS, PREPARE),
    as_served=Fact(False, ROWS, PREPARE),
    file_truncation=Fact("ignored", ROWS, PREPARE),
    prepares_model=Fact(False, TOKENIZER, "patch_tokenizer"),
    packs=Fact(None, ROWS, PREPARE),
    shuffles=Fact(True, "unsloth/trainer.py", "UnslothTrainer (TRL's SFTTrainer)"),
)
