"""LLaMA-Factory, release 0.9.5, in its stage sft.

Stage pt has transformers' language-modelling collator, which masks by id: the reader of its files says so in
`training.pads_masked_by`, which wins over the fact here.
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

ROWS = "llamafactory/data/processor/supervised.py"
ENCODE = "SupervisedDatasetProcessor._encode_data_example"
TEMPLATE = "llamafactory/data/template.py"
ALL: frozenset[RowKind] = frozenset(("chat", "prompt-completion", "instruction"))
FACTS = TrainerFacts(
    name="llama-factory",
    family="LLaMA-Factory {release}",
    title="LLaMA-Factory {release}",
    package="llamafactory",
    release="0.9.5",
    proof="read",
    # Its command reads the settings; nobody calls it from a script of their own.
    calls=("llamafactory.*",),
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
        ROWS,
        ENCODE,
    ),
    finds_answers_by=Fact("content", TEMPLATE, "Template.encode_multiturn"),
    pads_masked_by=Fact(
        "position", "llamafactory/train/sft/workflow.py", "run_sft (label_pad_token_id)"
    ),
    pads_on=Fact("right", "llamafactory/model/loader.py", "load_tokenizer"),
    missing_pad=Fact("eos", TEMPLATE, "Template.fix_special_tokens"),
    clashing_pad=Fact("kept", TEMPLATE, "Template.fix_special_tokens"),
    appends_eos=Fact(
        frozenset(("prompt-completion", "instruction", "text")),
        TEMPLATE,
        "Template._encode; PretrainDatasetProcessor",
    ),
    # It joins elements by ids, and adds BOS itself once.
    doubles_bos=Fact(
        False, TEMPLATE, "Template._convert_elements_to_ids (add_special_tokens=False)"
    ),
    stops_learned=Fact("turn", ROWS, ENCODE),
    cut=Fact(
        # Prompt and answer are shortened in proportion to their lengths, so that the end of the
        # answer goes too.
        CutOfLongRows(2048, "cutoff_len", "both", "kept"),
        "llamafactory/data/processor/processor_utils.py",
        "infer_seqlen",
    ),
    # It renders with a template of its own that the settings name: that of the tokenizer is not
    # read, so that training and serving may differ.
    template=Fact("own", TEMPLATE, "get_template_and_fix_tokenizer"),
    as_served=Fact(False, ROWS, ENCODE),
    file_truncation=Fact("ignored", TEMPLATE, "Template._convert_elements_to_ids"),
    prepares_model=Fact(False, TEMPLATE, "Template.fix_special_tokens"),
    packs=Fact(None, "llamafactory/hparams/data_args.py", "DataArguments.packing"),
    shuffles=Fact(
        True,
        "llamafactory/train/sft/trainer.py",
        "CustomSeq2SeqTrainer._get_train_sampler (disable_shuffling)",
    ),
)
