"""The folder contains two sets of weights, and a loader reads only one of them.

## What it does
If model.safetensors and model.safetensors.index.json are both there, compares the first bytes of the tensors that are
in both. It also fires if a folder has an adapter beside the weights of a whole model.

## Why it is bad
transformers loads model.safetensors and ignores the index; other loaders read all files, or those in the index. If a
run saved shards into a folder with an older single file, transformers uses the older weights. Of a folder with
adapter_config.json, transformers reads the base that is named there and puts the adapter on it: merged weights in the
folder are never read. Other programs read these, and some put the adapter on them a second time.

## Example
```yaml
llama: 2
files:
  model.safetensors.index.json: '{"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}'
shards:
  model-00001-of-00002.safetensors: {lm_head.weight: {shape: [64, 16], seed: 7}}
```

## Use instead
```yaml
llama: 2
files:
  model.safetensors.index.json: '{"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}'
shards:
  model-00001-of-00002.safetensors: {lm_head.weight: {shape: [64, 16]}}
```

## Fix safety
Look at the dates of the files first. Move an adapter into a folder of its own. Deleting the older set and its index
changes what loaders that used it return.

## References
- huggingface/transformers documentation, "Big models" (sharded checkpoints)
- huggingface/peft#1381
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checkpoint.read_and_check_safetensors_header import (
    BrokenFile,
    StoredTensor,
    read_safetensors_header,
)
from truetune.checkpoint.read_weight_files_and_faults import (
    INDEX_FILE,
    SINGLE_MODEL_FILE,
    read_json_object,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Chosen: two trainings differ in nearly every value, so that a page of each tensor tells them apart.
COMPARED_BYTES = 4096
# Chosen: more files than any published model has.
MAX_FILES = 512


class TwoSetsOfWeights(CheckpointRule):
    code = "CKP039"
    fault = Fault.CHECKPOINT_INCOMPLETE
    symptoms = ("good-here-bad-there", "nothing-is-learned")
    severity = "error"
    opens = False

    def unmet(self) -> Unmet | None:
        """Unmet where there is one set."""
        folder = self.subject.folder
        if (folder / SINGLE_MODEL_FILE).is_file() and (folder / INDEX_FILE).is_file():
            return None
        if self._file_beside_adapter() is not None:
            return None
        return Unmet("it is about two sets of weights, and there is one")

    def measurement_if_clean(self) -> str:
        """How many tensors both sets hold alike."""
        count = len(self._tensor_pairs_in_file_and_shards())
        return f"{count:,} tensors are the same in {SINGLE_MODEL_FILE} and in the shards"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        beside = self._file_beside_adapter()
        if beside is not None:
            yield self._finding_on_adapter_beside_weights(beside)
            return
        both = self._tensor_pairs_in_file_and_shards()
        different = [
            own.name
            for own, other in both
            if _dtype_shape_and_first_bytes(own) != _dtype_shape_and_first_bytes(other)
        ]
        if not different:
            return
        yield self.finding(
            f"{SINGLE_MODEL_FILE} and the shards of {INDEX_FILE} differ in {len(different):,} of"
            f" {len(both):,} tensors: transformers loads the single file, others load the shards",
            "delete the older of the two (ls -l shows the dates); if that is the shards, delete their index too",
            cases=[Case(name, file=SINGLE_MODEL_FILE) for name in different],
            count=len(different),
            total=len(both),
        )

    def _file_beside_adapter(self) -> str | None:
        """The file of a whole model's weights that is in an adapter's folder; None where there is none."""
        folder = self.subject.folder
        if self.subject.kind != "adapter" or not self.subject.has_file("adapter_config.json"):
            return None
        names = (SINGLE_MODEL_FILE, INDEX_FILE)
        return next((name for name in names if (folder / name).is_file()), None)

    def _finding_on_adapter_beside_weights(self, file: str) -> Finding:
        """The finding on an adapter in the folder of a whole model."""
        base = self.subject.adapter_config.get("base_model_name_or_path")
        return self.finding(
            f"the folder has an adapter beside {file}: transformers loads the adapter on its base ({base}), and never"
            f" reads {file}",
            "move adapter_config.json and the adapter's weights to another folder, so that only the merged model is"
            " here",
            cases=[Case("adapter_config.json", file="adapter_config.json"), Case(file, file=file)],
            count=2,
        )

    def _tensor_pairs_in_file_and_shards(self) -> list[tuple[StoredTensor, StoredTensor]]:
        """Each tensor of the single file that the shards hold too, with theirs."""
        folder = self.subject.folder
        index = read_json_object(folder / INDEX_FILE, []) or {}
        places = index.get("weight_map")
        files = {str(file) for file in places.values()} if isinstance(places, dict) else set()
        # A name with a folder in it points elsewhere.
        inside = sorted(file for file in files if Path(file).name == file)[:MAX_FILES]
        shards: dict[str, StoredTensor] = {}
        for file in inside:
            shards |= _tensors_of_file(folder / file)
        own = _tensors_of_file(folder / SINGLE_MODEL_FILE)
        return [(own[name], shards[name]) for name in own if name in shards]


def _tensors_of_file(path: Path) -> dict[str, StoredTensor]:
    """The whole tensors of a file by name; none where it is missing or broken, which other rules report."""
    try:
        header = read_safetensors_header(path)
    except (BrokenFile, OSError):
        return {}
    return {tensor.name: tensor for tensor in header.tensors if tensor.whole}


def _dtype_shape_and_first_bytes(tensor: StoredTensor) -> tuple[str, tuple[int, ...], bytes]:
    """What tells two tensors apart: dtype, shape, and the first bytes of the values."""
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        return tensor.dtype, tensor.shape, file.read(min(tensor.size, COMPARED_BYTES))
