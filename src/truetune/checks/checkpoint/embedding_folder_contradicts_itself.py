"""The files of an embedding model contradict each other on its width, its length or its parts.

## What it does
Reads the folder that sentence-transformers saves: modules.json, 1_Pooling/config.json and sentence_bert_config.json.
It fires if a module's folder is missing, if the pooling is for another width than `hidden_size` in config.json, if
texts may be longer than the model's positions, or if the last token is pooled and tokenizer.json adds none at the end
of a text.

## Why it is bad
A folder without its pooling is loaded with the mean of all tokens, by programs that read config.json alone: another
embedding than the trained one. Texts beyond the positions fail on a GPU in the middle of a run. With the last token,
the embedding is that of the end token. If none is added, it is that of the last word, and the ranking is worse.

## Example
```yaml
llama: 2
files:
  modules.json: '[{"path": "", "type": "models.Transformer"}, {"path": "1_Pooling", "type": "models.Pooling"}]'
  1_Pooling/config.json: '{"word_embedding_dimension": 768, "pooling_mode_mean_tokens": true}'
```

## Use instead
```yaml
llama: 2
files:
  modules.json: '[{"path": "", "type": "models.Transformer"}, {"path": "1_Pooling", "type": "models.Pooling"}]'
  1_Pooling/config.json: '{"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true}'
```

## Fix safety
Save the model again with `model.save_pretrained(folder)` of sentence-transformers: it writes all of these files.

## References
- embeddings-benchmark/mteb#5237 (no EOS any more: the last word is pooled), huggingface/sentence-transformers#2591
- oscardvs/zoteus#51 (four of ten published models pool the first token, and are read with the mean)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.sentence_transformer_folders import (
    EmbeddingFolder,
    read_embedding_folder,
    read_folder_object,
)

WIDTHS = ("word_embedding_dimension", "embedding_dimension")


@dataclass(frozen=True, slots=True)
class _Contradiction:
    """Two files that do not fit."""

    text: str
    remedy: str
    file: str


class EmbeddingFolderContradictsItself(CheckpointRule):
    code = "CKP060"
    fault = Fault.EMBEDDINGS_USED_OTHERWISE
    symptoms = ("odd-metrics",)
    severity = "error"
    opens = False

    def unmet(self) -> Unmet | None:
        """Unmet without the files of an embedding model."""
        if read_embedding_folder(self.subject.folder) is None:
            return Unmet("it is about embedding models, and there is no modules.json")
        return super().unmet()

    def measurement_if_clean(self) -> str:
        """What the files say together."""
        folder = read_embedding_folder(self.subject.folder)
        if folder is None:
            return ""
        length = "not set" if folder.max_seq_length is None else f"{folder.max_seq_length:,}"
        return f"pooling: {folder.pooling or 'none'}, width {folder.width}, longest text {length}"

    def findings(self) -> Iterator[Finding]:
        """Findings on files that do not fit each other."""
        folder = read_embedding_folder(self.subject.folder)
        for one in () if folder is None else _contradictions(self.subject, folder):
            yield self.finding(one.text, one.remedy, cases=[Case(one.text, file=one.file)])


def _contradictions(checkpoint: Checkpoint, folder: EmbeddingFolder) -> Iterator[_Contradiction]:
    """What does not fit in a folder."""
    for path in folder.missing_modules:
        yield _Contradiction(
            f"modules.json names the module {path}, and its config.json is not there",
            f"save the whole model again, or copy the folder {path} of the base model",
            str(checkpoint.folder / "modules.json"),
        )
    width = checkpoint.config.get("hidden_size")
    if type(width) is int and folder.width is not None and folder.width != width:
        yield _Contradiction(
            f"the pooling is for embeddings of width {folder.width}, but config.json has hidden_size {width}",
            f"set word_embedding_dimension to {width}, if the weights are of this model",
            str(folder.pooling_file),
        )
    positions = checkpoint.config.get("max_position_embeddings")
    longest = folder.max_seq_length
    if type(positions) is int and longest is not None and longest > positions:
        yield _Contradiction(
            f"texts may have {longest:,} tokens (max_seq_length), but the model has {positions:,} positions",
            f"set max_seq_length to {positions} or less in sentence_bert_config.json",
            str(checkpoint.folder / "sentence_bert_config.json"),
        )
    if folder.pooling == "lasttoken" and _adds_no_end_token(checkpoint.folder):
        yield _Contradiction(
            "the last token is pooled, but tokenizer.json adds none at the end of a text: the embedding is that of the"
            " last word",
            "add the end token in the post-processor of tokenizer.json, as the base model's does",
            str(checkpoint.folder / "tokenizer.json"),
        )


def _adds_no_end_token(folder: Path) -> bool:
    """Does the tokenizer's post-processor surely end a text without a special token?"""
    tokenizer = read_folder_object(folder / "tokenizer.json")
    if "model" not in tokenizer:
        return False
    processors = _processors(tokenizer.get("post_processor"))
    kinds = {one.get("type") for one in processors}
    # Those of BERT and RoBERTa end with their separator.
    if kinds & {"BertProcessing", "RobertaProcessing"}:
        return False
    templates = [one["single"] for one in processors if isinstance(one.get("single"), list)]
    return not any(template and "SpecialToken" in template[-1] for template in templates)


def _processors(value: Any) -> list[Mapping[str, Any]]:
    """The post-processors of a tokenizer: one, or those of a sequence."""
    if not isinstance(value, dict):
        return []
    parts = value.get("processors")
    if isinstance(parts, list):
        return [one for one in parts if isinstance(one, dict)]
    return [value]
