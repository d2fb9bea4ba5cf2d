"""Saved embedding models, and scripts and commands that use them otherwise than they were trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.settings.run_spec import RunSpec

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}
MODULES = [
    {"path": "", "type": "models.Transformer"},
    {"path": "1_Pooling", "type": "models.Pooling"},
]


def save(folder: Path, pooling: dict[str, Any] | None, **files: Any) -> Path:
    """A folder of sentence-transformers without its weights."""
    whole = {
        "config.json": CONFIG,
        "modules.json": MODULES,
        "sentence_bert_config.json": {"max_seq_length": 128},
        **({} if pooling is None else {"1_Pooling/config.json": pooling}),
        **{name.replace("__", "."): value for name, value in files.items()},
    }
    for name, value in whole.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def tokenizer(*end: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json whose texts end so."""
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, *end],
    }
    return {
        "model": {"type": "BPE", "vocab": {}},
        "post_processor": {"type": "Sequence", "processors": [template]},
    }


MEAN = {
    "word_embedding_dimension": 32,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_cls_token": False,
}
LAST = {"embedding_dimension": 32, "pooling_mode": "lasttoken"}
END = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}


@pytest.mark.parametrize(
    ("pooling", "files", "count"),
    [
        (MEAN, {}, 0),
        ({**MEAN, "word_embedding_dimension": 768}, {}, 1),
        (None, {}, 1),
        (MEAN, {"sentence_bert_config__json": {"max_seq_length": 512}}, 1),
        (LAST, {"tokenizer__json": tokenizer()}, 1),
        (LAST, {"tokenizer__json": tokenizer(END)}, 0),
        (LAST, {}, 0),
        (MEAN, {"tokenizer__json": tokenizer()}, 0),
        (
            MEAN,
            {"modules__json": [*MODULES, {"path": "2_Normalize", "type": "models.Normalize"}]},
            0,
        ),
    ],
)
def test_files_that_contradict_each_other_are_found(
    pooling: dict[str, Any] | None, files: dict[str, Any], count: int, tmp_path: Path
) -> None:
    report = check_paths([str(save(tmp_path, pooling, **files))], RunSpec())
    assert len([one for one in report.findings if one.code == "CKP060"]) == count


PROMPTS = {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": None}
WITH = "from sentence_transformers import SentenceTransformer\nmodel = SentenceTransformer('model'{more})\n"
PLAIN = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained('model')\nout = model(**batch)\n"
CHAIN = "from langchain_huggingface import HuggingFaceEmbeddings\ne = HuggingFaceEmbeddings(model_name='model'{more})\n"
USES = {
    "no prompt": (WITH.format(more="") + "model.encode(['a'])", 1),
    "by its name": (
        WITH.format(more="") + "model.encode(['a'], prompt_name='query')\nmodel.encode(texts)",
        0,
    ),
    "by its method": (WITH.format(more="") + "model.encode_query(['a'])\nmodel.encode(texts)", 0),
    "in the text": (WITH.format(more="") + "model.encode(['query: a'])", 0),
    "for all texts": (WITH.format(more=", default_prompt_name='query'") + "model.encode(['a'])", 0),
    "a training": (WITH.format(more="") + "model.encode(['a'])\nmodel.fit(train_objectives=[])", 0),
    "another folder": (
        WITH.format(more="").replace("'model'", "'other'") + "model.encode(['a'])",
        0,
    ),
    "LangChain": (CHAIN.format(more=""), 1),
    "LangChain with prompts": (
        CHAIN.format(more=", query_encode_kwargs={'prompt_name': 'query'}"),
        0,
    ),
    "the first token": (PLAIN + "v = out.last_hidden_state[:, 0]", 1),
    "the mean": (PLAIN + "v = (out.last_hidden_state * m).sum(1) / m.sum(1)", 0),
    "both": (
        PLAIN
        + "v = out.last_hidden_state[:, 0]\nw = (out.last_hidden_state * m).sum(1) / m.sum(1)",
        0,
    ),
}


@pytest.mark.parametrize("way", USES)
def test_a_script_that_uses_a_folder_otherwise_is_found(way: str, tmp_path: Path) -> None:
    text, count = USES[way]
    save(tmp_path / "model", MEAN, config_sentence_transformers__json=PROMPTS)
    script = tmp_path / "search.py"
    script.write_text(text, encoding="utf-8")
    assert len(lint([str(script)], select=("embedding-model-used-otherwise",)).findings) == count


TRAIN = "python -m tevatron.retriever.driver.train --output_dir out --pooling eos --query_prefix 'Q: ' --normalize\n"
ENCODE = (
    "python -m tevatron.retriever.driver.encode --model_name_or_path {model} --normalize {more}\n"
)
COMMANDS = {
    "alike": (
        ENCODE.format(model="out", more="--encode_is_query --query_prefix 'Q: ' --pooling eos"),
        0,
    ),
    "no prefix": (ENCODE.format(model="out", more="--encode_is_query --pooling eos"), 1),
    "another pooling": (ENCODE.format(model="out", more="--pooling mean"), 1),
    "passages have none": (ENCODE.format(model="out", more="--pooling eos"), 0),
    "another model": (ENCODE.format(model="base", more="--pooling mean"), 0),
}


@pytest.mark.parametrize("way", COMMANDS)
def test_texts_that_are_encoded_otherwise_are_found(way: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(TRAIN + COMMANDS[way][0], encoding="utf-8")
    assert (
        len(lint([str(script)], select=("encoded-otherwise-than-trained",)).findings)
        == COMMANDS[way][1]
    )


FLAG = "torchrun --nproc_per_node {n} -m FlagEmbedding.finetune.embedder.encoder_only.base --train_data a {more}\n"


@pytest.mark.parametrize(
    ("processes", "more", "count"),
    [
        (1, "--train_group_size 1 --per_device_train_batch_size 1", 1),
        (2, "--train_group_size 1 --per_device_train_batch_size 1", 0),
        (1, "--train_group_size 1 --per_device_train_batch_size 4", 0),
        (1, "--per_device_train_batch_size 1", 0),
        ("$GPUS", "--train_group_size 1 --per_device_train_batch_size 1", 0),
    ],
)
def test_a_group_and_a_batch_of_one_text_are_found(
    processes: object, more: str, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(FLAG.format(n=processes, more=more), encoding="utf-8")
    assert len(lint([str(script)], select=("contrast-without-other-texts",)).findings) == count
