"""Writes the tables of what engines' loaders do with adapters: `python -m tests.serving.write_engine_loaders SOURCES`.

SOURCES is a folder with the engines' code: `vllm-0.32.0/vllm/...` and `sglang-0.5.23/sglang/...` (the wheels' files),
`llama.cpp/` and, as files of one release, `ollama/` and `text-generation-inference/`. What is measured (modules,
names, renames) comes from the records of the real loaders beside this file; what is read is named here by words of the
line that says it, so that each fact gets its line number from the release itself and a fact whose line is gone stops
the command.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.serving.adapter_variants import TEXT_PREFIXES

HERE = Path(__file__).parent
RECORDS = HERE / "real_loaders"
TABLES = HERE.parents[1] / "src" / "truetune" / "checkpoint" / "engine_adapter_loaders"
LLAMA_CPP_RELEASE = "0c1e57098"
MEASURED_VLLM = "0.32.0"
Fact = list[str]


class Source:
    """The code of one release."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, file: str, words: str) -> bool:
        """Does a file have a line with these words?"""
        path = self.folder / file
        return path.is_file() and words in path.read_text("utf-8")

    def fact(self, effect: str, file: str, words: str) -> Fact:
        """A fact, with the file and line that has these words."""
        for number, line in enumerate((self.folder / file).read_text("utf-8").splitlines(), 1):
            if words in line:
                return [effect, f"{file}:{number}"]
        raise SystemExit(f"{self.folder / file}: no line has {words!r}")


def main() -> None:
    """Write all tables."""
    sources = Path(sys.argv[1])
    _write("vllm", _vllm_table(sources))
    _write("llama_cpp", _llama_cpp_table(sources / "llama.cpp"))
    _write("sglang", _sglang_table(sources))
    _write("ollama", _ollama_table(Source(sources / "ollama"), sources / "llama.cpp"))
    _write("tgi", _tgi_table(Source(sources / "text-generation-inference")))


def _write(name: str, table: dict[str, Any]) -> None:
    path = TABLES / f"{name}.json"
    path.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    print(
        f"{path.name}: {len(table['releases'])} releases, {len(table['architectures'])} architectures"
    )


def _read_record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
    return record


def _releases(sources: Path, engine: str) -> list[str]:
    """The releases of an engine in the folder, the newest first."""
    found = [path.name.removeprefix(f"{engine}-") for path in sources.glob(f"{engine}-*")]
    return sorted(
        found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True
    )


# vLLM


def _vllm_table(sources: Path) -> dict[str, Any]:
    releases = _releases(sources, "vllm")
    record = _read_record("vllm")
    folders = {release: sources / f"vllm-{release}" for release in releases}
    return {
        "repository": "vllm-project/vllm",
        "max_rank": 16,
        "rank_flag": "--max-lora-rank",
        # The build for CPUs counts its own builds behind the release (0.8.5.post2).
        "releases": {_plain(r): _vllm_release(Source(folder)) for r, folder in folders.items()},
        "architectures": dict(_vllm_architectures(record, folders)),
    }


def _plain(release: str) -> str:
    return release.partition(".post")[0]


def _vllm_release(source: Source) -> dict[str, Any]:
    helper, utils = "vllm/lora/peft_helper.py", "vllm/lora/utils.py"
    model = (
        "vllm/lora/lora_model.py"
        if source.has("vllm/lora/lora_model.py", "class")
        else "vllm/lora/models.py"
    )
    manager = (
        "vllm/lora/model_manager.py" if source.has("vllm/lora/model_manager.py", "class") else model
    )
    config = next(
        f"vllm/config{end}"
        for end in ("/lora.py", ".py")
        if source.has(f"vllm/config{end}", "max_lora_rank")
    )

    def newer(setting: str, otherwise: str, refused: str = "refused") -> Fact:
        """A setting that later releases look at; earlier ones filter it out of adapter_config.json."""
        if source.has(helper, f"self.{setting}"):
            return source.fact(refused, helper, f"self.{setting}")
        return source.fact(otherwise, helper, "Filter out fields")

    facts = {
        "dora": source.fact("refused", helper, "if self.use_dora"),
        "rslora": source.fact("served", helper, "if self.use_rslora"),
        "alpha_pattern": newer("alpha_pattern", "ignored", "served"),
        "rank_pattern": newer("rank_pattern", "ignored", "served"),
        "bias": source.fact("refused", helper, 'self.bias != "none"'),
        "modules_to_save": source.fact("refused", helper, "if self.modules_to_save:"),
        "weight_changing_init": newer("init_lora_weights", "ignored"),
        "layer_replication": newer("layer_replication", "ignored"),
        "activated_lora": newer("alora_invocation_tokens", "ignored"),
        "whole_tensors": source.fact("refused", utils, "is unsupported LoRA weight"),
        "names_without_prefix": source.fact("served", utils, "start_index = 2 if"),
        "unknown_name": source.fact("refused", model, "unexpected_modules.append"),
        "unknown_place": source.fact("ignored", manager, "module.reset_lora(index)"),
        "rank_over_limit": source.fact("refused", helper, "is greater than max_lora_rank"),
        "target_modules_pattern": source.fact(
            "served", model, "safetensor key as a source of truth"
        ),
    }
    # Before this release biases of factors were parsed as biases of modules, which was not followed further.
    if not source.has(utils, 'if parts[-1] == "bias"'):
        facts["lora_bias"] = newer("lora_bias", "refused")
    if source.has(utils, "def is_base_embed"):
        facts["base_copies"] = source.fact("ignored", utils, "def is_base_embed")
    ranks = re.search(
        r"(?:Literal\[|possible_max_ranks = \()(\d[\d, ]+\d)[\])]",
        (source.folder / config).read_text("utf-8"),
    )
    assert ranks is not None
    release: dict[str, Any] = {"facts": facts, "ranks": [int(rank) for rank in ranks[1].split(",")]}
    if source.has(config, "enable_tower_connector_lora"):
        release["other_parts_flag"] = "--enable-tower-connector-lora"
    return release


def _vllm_architectures(
    record: dict[str, Any], folders: dict[str, Path]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The architectures whose classes were tried, with the releases whose code for them is the same."""
    for name, entry in record["architectures"].items():
        file = entry["file"]
        signature = _class_signature(folders[MEASURED_VLLM], file)
        same = [
            _plain(release)
            for release, folder in folders.items()
            if release == MEASURED_VLLM
            # What transformers' own classes are called is not in the engine's code.
            or (
                not file.endswith("transformers/__init__.py")
                and _class_signature(folder, file) == signature
            )
        ]
        architecture = {
            key: entry[key]
            for key in ("names", "regex", "substring", "prefix", "suffix")
            if entry.get(key)
        }
        if not entry["takes_adapters"]:
            architecture["takes_adapters"] = False
        yield name, {"releases": same, "source": file, **architecture, "served": entry["served"]}


def _class_signature(folder: Path, file: str) -> tuple[str, ...] | None:
    """What a model's file and those that it imports say of its linear modules and of the names of its weights."""
    path = folder / file
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text("utf-8"))
    signature = _own_signature(tree)
    # Without one of these, a mapper that stacks would rename q_proj to qkv_proj in adapters as well.
    stacks = "orig_to_new_stacked" in path.read_text("utf-8")
    worker = (folder / "vllm/lora/worker_manager.py").read_text("utf-8")
    if stacks and not any(
        words in worker for words in ("get_rename_mapper", "get_unstacked_mapper")
    ):
        return None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 1
            and node.module not in (None, "utils", "interfaces", "vision")
        ):
            other = path.parent / f"{node.module}.py"
            if other.is_file() and other.name not in (
                "utils.py",
                "interfaces.py",
                "interfaces_base.py",
            ):
                signature |= _own_signature(ast.parse(other.read_text("utf-8")))
    return tuple(sorted(signature))


HEADS = ("score", "classifier", "head")
"""Names of heads that classify, which no adapter of these architectures has"""


def _renames_of_mapper(value: ast.expr | None) -> set[str]:
    """The renames of names that a WeightsMapper makes. The loader of adapters takes no others: it leaves out stacking,
    and names that are dropped (`get_rename_mapper`)."""
    if not isinstance(value, ast.Call):
        return set()
    renames = set()
    for keyword in value.keywords:
        if keyword.arg in (None, "orig_to_new_stacked") or not isinstance(keyword.value, ast.Dict):
            continue
        for old, new in zip(keyword.value.keys, keyword.value.values, strict=True):
            if old is not None and not (isinstance(new, ast.Constant) and new.value is None):
                renames.add(f"{keyword.arg}: {ast.unparse(old)} -> {ast.unparse(new)}")
    return renames


def _own_signature(tree: ast.Module) -> set[str]:
    names = {"packed_modules_mapping", "embedding_modules", "lora_skip_prefixes"}
    signature = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id == "hf_to_vllm_mapper":
                    signature |= _renames_of_mapper(node.value)
                elif isinstance(target, ast.Name) and target.id in names and node.value is not None:
                    signature.add(f"{target.id} = {ast.unparse(node.value)}")
                elif isinstance(target, ast.Attribute) and isinstance(node.value, ast.Call):
                    call = ast.unparse(node.value.func)
                    if (
                        call.endswith(("Linear", "LMHead", "ParallelEmbedding"))
                        and target.attr not in HEADS
                    ):
                        signature.add(f"{target.attr}: {call}")
    return signature


# llama.cpp and Ollama, which runs it


def _llama_cpp_facts(source: Source) -> dict[str, Fact]:
    convert = "convert_lora_to_gguf.py"
    not_read = source.fact("ignored", convert, 'alpha: float = lparams["lora_alpha"]')
    return {
        "dora": source.fact("refused", convert, "Not a lora_A or lora_B tensor"),
        "rslora": not_read,
        "alpha_pattern": not_read,
        "rank_pattern": source.fact("served", "src/llama-adapter.h", "const float rank"),
        "bias": source.fact("refused", convert, "Not a lora_A or lora_B tensor"),
        "lora_bias": source.fact("refused", convert, "Not a lora_A or lora_B tensor"),
        "modules_to_save": source.fact("refused", convert, "Embeddings is present in the adapter"),
        "weight_changing_init": not_read,
        "layer_replication": not_read,
        "activated_lora": source.fact("served", convert, "alora_invocation_tokens = lparams.get"),
        "whole_tensors": source.fact("refused", convert, "Not a lora_A or lora_B tensor"),
        "base_copies": source.fact("ignored", convert, 'if ".base_layer.weight" in name'),
        "names_without_prefix": source.fact(
            "served", convert, 'lora_tensor_name.replace("base_model.model."'
        ),
        "unknown_name": source.fact("refused", "conversion/base.py", "Can not map tensor"),
        "target_modules_pattern": ["served", not_read[1]],
        "settings": not_read,
        # The converter takes it; the file of the base has no such tensor.
        "tied_head": source.fact(
            "refused", "src/llama-adapter.cpp", "does not exist in base model"
        ),
    }


def _llama_cpp_table(folder: Path) -> dict[str, Any]:
    architectures = {}
    for name, entry in _read_record("llama_cpp")["architectures"].items():
        architectures[name] = {"releases": [LLAMA_CPP_RELEASE], **entry}
    return {
        "repository": "ggml-org/llama.cpp",
        "max_rank": None,
        "rank_flag": "",
        "releases": {LLAMA_CPP_RELEASE: {"facts": _llama_cpp_facts(Source(folder))}},
        "architectures": architectures,
    }


def _ollama_table(source: Source, llama_cpp: Path) -> dict[str, Any]:
    """Ollama converts adapters itself, for two architectures; what it does not rename, llama.cpp has no tensor for."""
    release, convert = "0.32.15", "convert/convert.go"
    facts = {
        name: source.fact(effect, convert, '"adapter.lora.alpha"')
        for name, effect in (
            ("rslora", "ignored"),
            ("alpha_pattern", "ignored"),
            ("rank_pattern", "served"),
            ("weight_changing_init", "ignored"),
            ("layer_replication", "ignored"),
            ("activated_lora", "ignored"),
            ("target_modules_pattern", "served"),
        )
    }
    unknown = source.fact("refused", "convert/convert_llama_adapter.go", '"base_model.model.", ""')
    for name in (
        "dora",
        "bias",
        "lora_bias",
        "modules_to_save",
        "whole_tensors",
        "unknown_name",
        "base_copies",
    ):
        facts[name] = unknown
    facts["settings"] = source.fact("ignored", convert, '"adapter.lora.alpha"')
    facts["names_without_prefix"] = source.fact(
        "served", "convert/convert_llama_adapter.go", '"base_model.model.", ""'
    )
    layers = [f"model.layers.*.self_attn.{name}_proj" for name in "qkvo"]
    layers += [f"model.layers.*.mlp.{name}_proj" for name in ("gate", "up", "down")]
    # Mistral's models are of the architecture llama in a GGUF file.
    served = {
        "LlamaForCausalLM": "llama",
        "MistralForCausalLM": "llama",
        "Gemma2ForCausalLM": "gemma2",
    }
    architectures: dict[str, Any] = {
        name: {
            "releases": [release],
            "source": f"convert/convert_{kind}_adapter.go",
            "served": layers,
        }
        for name, kind in served.items()
    }
    refused = source.fact("refused", convert, 'errors.New("unsupported architecture")')[1]
    for name in _read_record("llama_cpp")["architectures"]:
        # Others that a GGUF file calls llama are not known here, and so not judged.
        if name not in served and name not in LLAMA_IN_GGUF:
            architectures[name] = {
                "releases": [release],
                "source": refused,
                "takes_adapters": False,
            }
    return {
        "repository": "ollama/ollama",
        "max_rank": None,
        "rank_flag": "",
        "releases": {release: {"facts": facts}},
        "architectures": architectures,
    }


LLAMA_IN_GGUF = (
    "MixtralForCausalLM",
    "LlavaForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "InternVLForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
)
"""Architectures whose GGUF files may be called llama, too"""


# SGLang


def _sglang_table(sources: Path) -> dict[str, Any]:
    releases = _releases(sources, "sglang")
    architectures: dict[str, Any] = {}
    for release in releases:
        for name, entry in _sglang_architectures(sources / f"sglang-{release}"):
            known = architectures.setdefault(name, {"releases": [], **entry})
            # Another release that serves other modules is left out, and so not judged.
            if {key: known[key] for key in entry if key != "source"} == {
                key: entry[key] for key in entry if key != "source"
            }:
                known["releases"].append(release)
    return {
        "repository": "sgl-project/sglang",
        "max_rank": None,
        "rank_flag": "--max-lora-rank",
        "partners": SGLANG_PARTNERS,
        "releases": {
            release: {"facts": _sglang_facts(Source(sources / f"sglang-{release}"))}
            for release in releases
        },
        "architectures": architectures,
    }


SGLANG_PARTNERS = {
    "q_proj": "v_proj",
    "k_proj": "q_proj",
    "v_proj": "q_proj",
    "up_proj": "gate_proj",
}
"""Module -> the one that must be there for it to be stacked (`normalize_qkv_proj`, `normalize_gate_up_proj`)"""


def _sglang_facts(source: Source) -> dict[str, Fact]:
    lora, manager, utils = (
        f"sglang/srt/lora/{name}.py" for name in ("lora", "lora_manager", "utils")
    )
    scale = source.fact("ignored", lora, "self.scaling: float")
    return {
        "dora": source.fact("refused", manager, "if lora_config.use_dora"),
        "rslora": scale,
        "alpha_pattern": scale,
        "rank_pattern": scale,
        "weight_changing_init": scale,
        "layer_replication": scale,
        "activated_lora": scale,
        "modules_to_save": source.fact("ignored", lora, "is not in adapter's target_modules"),
        "whole_tensors": source.fact("ignored", lora, "is not in adapter's target_modules"),
        "base_copies": source.fact("ignored", lora, "is not in adapter's target_modules"),
        "names_without_prefix": source.fact("served", lora, "layer_id = get_layer_id(name)"),
        "unknown_name": source.fact("refused", utils, "Cannot find target module name for"),
        "missing_partner": source.fact("refused", lora, "torch.zeros_like(weights[v_name])"),
        "target_modules_pattern": source.fact(
            "refused", utils, "can be used as the string for target module"
        ),
    }


SGLANG_PARTS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "o_proj": ("o_proj",),
    "down_proj": ("down_proj",),
}


def _sglang_architectures(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The decoders of plain text whose files build the four linear modules that SGLang's adapters know."""
    models = folder / "sglang" / "srt" / "models"
    for name in _read_record("modules"):
        if name.endswith("ForConditionalGeneration"):
            continue
        path = next(
            (
                p
                for p in sorted(models.glob("*.py"))
                if re.search(rf"^class {name}\(", p.read_text("utf-8"), re.M)
            ),
            None,
        )
        if path is None:
            continue
        built = _sglang_linear_names(path)
        if not {"qkv_proj", "o_proj"} <= built or "experts" in built:
            continue
        names = [
            part for parent, parts in SGLANG_PARTS.items() if parent in built for part in parts
        ]
        yield (
            name,
            {
                "source": f"sglang/srt/models/{path.name}",
                "served": [f"**layers.*.**{part}" for part in names],
                # Served where target_modules names them; how was not followed to the end.
                "unknown": ["lm_head", "embed_tokens"],
            },
        )


def _sglang_linear_names(path: Path) -> set[str]:
    """Names of the linear modules that a file builds, and of those in the files that it imports."""
    tree = ast.parse(path.read_text("utf-8"))
    trees = [tree]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "sglang.srt.models."
        ):
            other = path.parent / f"{(node.module or '').rpartition('.')[2]}.py"
            if other.is_file():
                trees.append(ast.parse(other.read_text("utf-8")))
    return {
        node.targets[0].attr
        for one in trees
        for node in ast.walk(one)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith(("Linear", "MoE"))
    }


# text-generation-inference


def _tgi_table(source: Source) -> dict[str, Any]:
    release, adapters, lookup = (
        "3.3.7",
        "server/text_generation_server/adapters/lora.py",
        "server/text_generation_server/utils/adapter.py",
    )
    not_found = source.fact("ignored", adapters, "lora_a_name not in adapter_weights")
    scale = source.fact("ignored", adapters, "scale = get_scaling_factor(")
    facts = {
        "rslora": source.fact("served", adapters, "uses_rslora=config.use_rslora"),
        "alpha_pattern": scale,
        "rank_pattern": scale,
        "dora": not_found,
        "bias": not_found,
        "lora_bias": not_found,
        "modules_to_save": not_found,
        "weight_changing_init": not_found,
        "layer_replication": not_found,
        "activated_lora": not_found,
        "whole_tensors": not_found,
        "base_copies": not_found,
        "names_without_prefix": not_found,
        "unknown_name": not_found,
        "target_modules_pattern": source.fact(
            "served", adapters, "target_modules=hf_config.target_modules"
        ),
        "missing_layers": source.fact(
            "ignored", adapters, "There is no LoRA weight for this layer type"
        ),
    }
    attention = [f"model.layers.*.self_attn.{name}_proj" for name in "qkvo"]
    gated = attention + [f"model.layers.*.mlp.{name}_proj" for name in ("gate", "up", "down")]
    served = {
        "LlamaForCausalLM": ("flash_llama_modeling.py", gated),
        "MistralForCausalLM": ("flash_mistral_modeling.py", gated),
        "Qwen2ForCausalLM": ("flash_qwen2_modeling.py", gated),
        "Gemma2ForCausalLM": ("flash_gemma2_modeling.py", gated),
        "Starcoder2ForCausalLM": (
            "flash_starcoder2_modeling.py",
            [*attention, "model.layers.*.mlp.c_fc", "model.layers.*.mlp.c_proj"],
        ),
    }
    folder = "server/text_generation_server/models/custom_modeling"
    for file, _ in served.values():
        source.fact("served", f"{folder}/{file}", "TensorParallelMultiAdapterLinear")
    source.fact("served", lookup, 'f"model.layers.{i}.self_attn.{k}_proj"')
    return {
        "repository": "huggingface/text-generation-inference",
        "max_rank": None,
        "rank_flag": "",
        "releases": {release: {"facts": facts}},
        "architectures": {
            name: {"releases": [release], "source": f"{folder}/{file}", "served": modules}
            for name, (file, modules) in served.items()
        },
    }


def text_patterns_under(prefix: str, patterns: list[str]) -> list[str]:
    """The patterns of the text part under another prefix."""
    renamed = []
    for pattern in patterns:
        own = next((one for one in TEXT_PREFIXES if pattern.startswith(one)), None)
        if own is not None:
            renamed.append(prefix + pattern.removeprefix(own))
    return renamed


if __name__ == "__main__":
    main()
