"""An embedding model is asked in another way than its folder says: without its prompt, or with another pooling.

## What it does
Reads the folders of embedding models that a script loads, if they are beside it. It fires if
config_sentence_transformers .json has a prompt for queries that is no default, and the script only calls `encode`
without a prompt; and if the script loads the folder with AutoModel and pools otherwise than 1_Pooling/config.json
(the first token, the mean, the last token).

## Why it is bad
The prompt is part of the text that the model was trained on, and another pooling is another embedding. Everything
runs, and the ranking is worse: in one public case cosines of unrelated texts rose from -0.03 to 0.53.

## Example
```python
# model/modules.json: [{"path": "", "type": "models.Transformer"}, {"path": "1_Pooling", "type": "models.Pooling"}]
# model/1_Pooling/config.json: {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": true}
# model/config_sentence_transformers.json: {"prompts": {"query": "query: ", "document": "passage: "}}
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("model")
queries = model.encode(["When do you open?"])
texts = model.encode(["We open at nine.", "Next to the church."])
```

## Use instead
```python
# model/modules.json: [{"path": "", "type": "models.Transformer"}, {"path": "1_Pooling", "type": "models.Pooling"}]
# model/1_Pooling/config.json: {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": true}
# model/config_sentence_transformers.json: {"prompts": {"query": "query: ", "document": "passage: "}}
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("model")
queries = model.encode_query(["When do you open?"])
texts = model.encode_document(["We open at nine.", "Next to the church."])
```

## Fix safety
`encode_query` and `encode_document` are safe. Embeddings that were stored without the prompt have to be made again.

## References
- codelion/adaptive-classifier#66 (measured: the first token instead of the mean), Blaizzy/mlx-embeddings#63
- nextcloud/context_chat_backend#338, fw-ai/cookbook#614
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.sentence_transformer_folders import EmbeddingFolder, read_embedding_folder
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

EMBEDDING_LOADS = (
    "sentence_transformers.SentenceTransformer",
    "sentence_transformers.*.SentenceTransformer",
)
WRAPPED_LOADS = ("langchain*.HuggingFaceEmbeddings",)
"""Embeddings of LangChain, which add no prompt by themselves"""
PLAIN_LOADS = ("transformers.AutoModel.from_pretrained",)
PROMPTED = ("encode_query", "encode_document")
PROMPT_FILE = "config_sentence_transformers.json"
ENCODING_ARGUMENTS = ("query_encode_kwargs", "encode_kwargs", "model_kwargs")
PROMPT_ARGUMENTS = ("prompt", "prompt_name")
POOLING_IN_CODE = (
    (
        "cls",
        re.compile(r"(?:last_hidden_state|hidden\w*|outputs?\[0\])\[:, 0(?:, :)?\]|pooler_output"),
    ),
    (
        "lasttoken",
        re.compile(
            r"(?:last_hidden_state|hidden\w*|outputs?\[0\])\[:, -1(?:, :)?\]|last_token_pool"
        ),
    ),
    (
        "mean",
        re.compile(
            r"mean_pool|\.sum\((?:dim=|axis=)?1\)\s*/|last_hidden_state\.mean\((?:dim=)?1\)"
        ),
    ),
)
"""Poolings, and how code says them"""


class EmbeddingModelUsedOtherwise(SourceRule):
    code = "SRC580"
    fault = Fault.EMBEDDINGS_USED_OTHERWISE
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "warning"
    looks_at = places_of_calls(
        "embedding models that are loaded", *EMBEDDING_LOADS, *WRAPPED_LOADS, *PLAIN_LOADS
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on models that are used otherwise than their folder says."""
        module = self.subject
        if any(module.calls("sentence_transformers.*Trainer")) or any(
            module.methods("backward", "fit")
        ):
            return
        for load in module.calls(*EMBEDDING_LOADS):
            folder = _folder_of_load(module, load)
            if folder is not None:
                yield from self._findings_on_prompts(module, load, folder)
        for load in module.calls(*WRAPPED_LOADS):
            folder = _folder_of_load(module, load)
            if folder is not None:
                yield from self._findings_on_wrapped_model(module, load, folder)
        for load in module.calls(*PLAIN_LOADS):
            folder = _folder_of_load(module, load)
            if folder is not None:
                yield from self._findings_on_pooling(module, load, folder)

    def _findings_on_prompts(
        self, module: Module, load: Call, folder: EmbeddingFolder
    ) -> Iterator[Finding]:
        """The finding that a model with a prompt for queries gets none."""
        if "query" not in folder.prompts or folder.default_prompt is not None:
            return
        if any(name in load.keywords for name in ("prompts", "default_prompt_name")) or load.open:
            return
        calls = list(module.methods("encode"))
        has_prompt = any(set(PROMPT_ARGUMENTS) & set(call.keywords) or call.open for call in calls)
        if not calls or has_prompt or any(module.methods(*PROMPTED)):
            return
        if folder.prompts["query"].strip() in module.text:
            return
        prompt = folder.prompts["query"]
        yield self.finding(
            f"the model was saved with the prompt {prompt!r} for queries, but every text is encoded without one",
            'encode queries with encode_query, and texts with encode_document, or name prompts (prompt_name="query")',
            cases=[
                case_of_node(module, calls[0].node),
                Case(
                    f"query: {prompt!r}",
                    file=str(folder.folder / PROMPT_FILE),
                ),
            ],
        )

    def _findings_on_wrapped_model(
        self, module: Module, load: Call, folder: EmbeddingFolder
    ) -> Iterator[Finding]:
        """The finding that LangChain asks a model with a prompt for queries without one."""
        has_arguments = any(name in load.keywords for name in ENCODING_ARGUMENTS) or load.open
        prompt = folder.prompts.get("query", "")
        if not prompt or folder.default_prompt is not None or has_arguments:
            return
        yield self.finding(
            f"the model was saved with the prompt {prompt!r} for queries, and HuggingFaceEmbeddings adds none",
            'set query_encode_kwargs={"prompt_name": "query"}, and encode_kwargs for the texts alike',
            cases=[
                case_of_node(module, load.node),
                Case(f"query: {prompt!r}", file=str(folder.folder / PROMPT_FILE)),
            ],
        )

    def _findings_on_pooling(
        self, module: Module, load: Call, folder: EmbeddingFolder
    ) -> Iterator[Finding]:
        """The finding that code pools otherwise than the model was trained."""
        pooled = [mode for mode, pattern in POOLING_IN_CODE if pattern.search(module.text)]
        if len(pooled) != 1 or not folder.pooling or folder.pooling == pooled[0]:
            return
        yield self.finding(
            f"the model was trained with the pooling {folder.pooling!r}, but the script pools by {pooled[0]!r}",
            "load the folder with SentenceTransformer, which pools as the model was trained",
            cases=[
                case_of_node(module, load.node),
                Case(f"pooling: {folder.pooling}", file=str(folder.pooling_file)),
            ],
        )


def _folder_of_load(module: Module, load: Call) -> EmbeddingFolder | None:
    """The folder of an embedding model that a call loads, if it is beside the script."""
    given = (
        load.keywords.get("model_name")
        or load.argument(0, "model_name_or_path")
        or load.argument(0, "pretrained_model_name_or_path")
    )
    name = None if given is None else module.flow.value(given)
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    try:
        return read_embedding_folder(Path(module.path).parent / name)
    except OSError:
        return None
