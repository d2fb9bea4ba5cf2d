"""Every reader of files and texts that somebody else wrote, by the module that it stands in, with a sound input.

`OF_OTHERS` holds those that take untrusted input, `OWN` the modules that use the guard for something else, and why they
are not fed with broken input here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.pictures import grey_png

ROW = {
    "messages": [
        {"role": "user", "content": "Is it open?"},
        {"role": "assistant", "content": "Yes."},
    ]
}
TOOL_CALL = {"function": {"name": "f", "arguments": '{"a": [1, {"b": 2}]}'}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [TOOL_CALL]}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
TOOL_ROW = {"messages": [{"role": "user", "content": "?"}, CALLING], "tools": json.dumps(TOOLS)}
LINES = "".join(json.dumps(row) + "\n" for row in (ROW, TOOL_ROW)).encode()
SETTINGS = (
    b"data: [a.jsonl]\ntokenizer: .\nmax_length: 2048\nlearn: {what: last}\ntraining: &t"
    b" {learning_rate: 1e-4}\n"
)
STATE = {
    "global_step": 2,
    "max_steps": 2,
    "log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}],
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 256,
}
TOKENS = {"added_tokens": [{"id": 1, "content": "<s>"}], "model": {"vocab": {"a": 0}}}
NOTEBOOK = {
    "cells": [{"cell_type": "code", "source": ["x = 1\n", "y = 2"]}],
    "metadata": {},
    "nbformat": 4,
}
RUN_NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "outputs": [{"name": "stdout", "text": ["{'loss': 2.5, 'epoch': 0.1}\n"]}],
        }
    ],
    "nbformat": 4,
}
CONSOLE = b"""{'loss': 2.5, 'epoch': 0.1}
 50%|#####     | 1/2 [00:01<00:01,  1.0s/it]\rTraceback (most recent call last):
  File "train.py", line 3, in <module>
    trainer.train()
ValueError: no rows
"""
SHELL = b"""#!/bin/bash
#SBATCH --gres=gpu:4
export N=4
torchrun --nproc_per_node $N train.py --lr 1e-4 && vllm serve m --enforce-eager
"""
WEIGHT_MAP = b'{"weight_map": {"a": "b.safetensors"}}'
RESULT = b'{"schema": "truetune.report/1", "subjects": [], "findings": []}'
VALUE_ERRORS = ("ValueError", "JSONDecodeError", "InputLimitError")
PYTHON = (
    b"from trl import SFTConfig\nargs = SFTConfig(learning_rate=2e-5, output_dir='x')\nif args:\n  "
    b"  print(args)\n"
)

POD = b"""apiVersion: v1
kind: Pod
spec:
  containers:
    - {image: "vllm/vllm-openai:1", args: ["--model", "m"], env: [{name: A, value: "1"}]}
"""


class Reader(NamedTuple):
    """How a module is fed."""

    file: str
    """The name of the file that holds the input"""
    sound: bytes
    read: Callable[[Path], Any]
    allowed: tuple[str, ...] = ()
    """Names of exceptions that the reader promises besides those of truetune"""


def _rows(path: Path) -> Any:
    from truetune.data.read_rows_as_conversations import read_conversations

    return sum(1 for _ in read_conversations([str(path)]))


def _pictures(path: Path) -> Any:
    from truetune.data.conversation import Conversation, Origin
    from truetune.data.read_pictures_of_rows import PictureReader

    content = path.read_bytes()
    found = []
    # As JPEG, WebP, BMP and GIF too: each has a reader of its own.
    for begin in (b"", b"\xff\xd8", b"RIFF\0\1\0\0WEBPVP8X", b"BM", b"GIF89a"):
        held = {"bytes": begin + content, "path": None}
        row = Conversation(Origin(str(path), 1, 0), "text", raw={"images": [str(path), held]})
        found.append(PictureReader().pictures_of_row(row))
    return found


def _rows_of_folder(path: Path) -> Any:
    (path.parent / "a.arrow").write_bytes(parquet_file("arrow"))
    return _rows(path.parent)


def _scan(path: Path) -> Any:
    from truetune.data.find_data_files import find_data_files_of_paths
    from truetune.data.split_lines_into_stretches import scan_and_cut_lines

    return scan_and_cut_lines(find_data_files_of_paths([str(path)])[0], 1 << 16)


def _settings(path: Path) -> Any:
    from truetune.settings.read_truetune_settings import find_own_settings_and_file

    return find_own_settings_and_file(str(path), path.parent)


def _config(path: Path) -> Any:
    from truetune.settings.stacks.read_config_of_any_stack import read_config

    return read_config(path)


def _kind(path: Path) -> Any:
    from truetune.settings.recognise_input_kind import recognise_kinds

    return recognise_kinds(path)


def _fixed(path: Path) -> Any:
    from truetune.fixing.fix_file import fix_data_file
    from truetune.settings.run_spec import RunSpec

    return fix_data_file(
        RunSpec(data=(str(path),)), str(path.with_name(f"fixed-{path.name}")), unsafe=True
    )


def _columns(path: Path) -> Any:
    from truetune.settings.stacks.read_columns_of_local_dataset import columns_of_first_row

    return columns_of_first_row((str(path),))


def _log(path: Path) -> Any:
    from truetune.logs.read_run_log import read_run

    return read_run(path)


def _log_of_folder(path: Path) -> Any:
    return _log(path.parent.parent)


def _several(path: Path) -> Any:
    from truetune.logs.refuse_folder_of_several_runs import refuse_multiple_runs

    return refuse_multiple_runs(path.parent)


def _lint(path: Path) -> Any:
    from truetune.checks.lint import lint

    return lint([path])


def _modelfile(path: Path) -> Any:
    from truetune.checks.inspect_modelfile import inspect_modelfile
    from truetune.settings.run_spec import RunSpec

    return inspect_modelfile(str(path), RunSpec())


def _safetensors(path: Path) -> Any:
    from truetune.checkpoint.read_and_check_safetensors_header import read_safetensors_header

    return read_safetensors_header(path)


def _weights(path: Path) -> Any:
    from truetune.checkpoint.read_weight_files_and_faults import (
        read_json_object,
        read_weight_headers,
    )

    return read_json_object(path, []), read_weight_headers(path.parent, adapter=False)


def _tokens(path: Path) -> Any:
    from truetune.checkpoint.tokens_added_beyond_base import find_new_tokens

    return find_new_tokens(path.parent, path.parent)


def _templates(path: Path) -> Any:
    from truetune.render.find_tokenizer_folder import read_json, read_templates

    return read_templates(path.parent, read_json(path) or {})


def _architecture(path: Path) -> Any:
    from truetune.memory.matrices_and_parameters_from_config import read_architecture

    return read_architecture(path)


def _result(path: Path) -> Any:
    from truetune.report.load_results import read_result_for_page

    return read_result_for_page(str(path))


def _flag(path: Path) -> Any:
    from truetune.cli.shared_options import _parse_json_or_text

    return _parse_json_or_text("x", path.read_bytes().decode("utf-8", "surrogateescape"))


def _set(path: Path) -> Any:
    from truetune.cli.plan_gpu_memory_command import parse_nested_settings

    return parse_nested_settings(
        ("lora.r=" + path.read_bytes().decode("utf-8", "surrogateescape"),)
    )


def _reply(path: Path) -> Any:
    from truetune.generation.answer_parsers_named_by_user import _read_json_of_text_or_fenced_block

    return _read_json_of_text_or_fenced_block(path.read_bytes().decode("utf-8", "replace"))


def _answer(path: Path) -> Any:
    from truetune.generation.final_answers import _compare_json_in_text, find_final_answer

    text = path.read_bytes().decode("utf-8", "replace")
    return find_final_answer(text), list(_compare_json_in_text(text, "1"))


def _code(path: Path) -> Any:
    from truetune.checks.rows.evidence.broken_code import judge_code_in_text

    text = path.read_bytes().decode("utf-8", "replace")
    return list(judge_code_in_text(text, is_python_3_asked=True))


def _json_fault(path: Path) -> Any:
    from truetune.generation.json_faults_of_answers import json_fault

    return json_fault(path.read_bytes().decode("utf-8", "replace"))


def _call(path: Path) -> Any:
    from truetune.generation.backends.read_server_replies import _parse_arguments

    return _parse_arguments(
        {"function": {"name": "f", "arguments": path.read_bytes().decode("utf-8", "replace")}}
    )


def _vocabulary(path: Path) -> Any:
    from truetune.checks.config.evidence import facts_from_model_folder

    class Config:
        class spec:  # noqa: N801 the shape of a Config
            model = tokenizer = str(path.parent)

    config: Any = Config
    return (
        facts_from_model_folder.tensor_shapes(config),
        facts_from_model_folder.sample_linear_weights(config),
        facts_from_model_folder.model_config(config),
    )


def _predictions(path: Path) -> Any:
    from truetune.data.read_predictions import read_predictions

    return read_predictions([str(path)])


def _cache(path: Path) -> Any:
    from truetune.tokenized.open_token_cache import open_token_cache, tokenizer_named_by_cache

    return tokenizer_named_by_cache(open_token_cache(str(path.parent)))


def safetensors_file() -> bytes:
    header = json.dumps(
        {"a.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


def parquet_file(kind: str) -> bytes:
    import pyarrow as arrow
    from pyarrow import parquet

    table = arrow.Table.from_pylist([ROW, ROW])
    sink = arrow.BufferOutputStream()
    if kind == "parquet":
        parquet.write_table(table, sink)
    else:
        with (arrow.ipc.new_file if kind == "feather" else arrow.ipc.new_stream)(
            sink, table.schema
        ) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def events_file() -> bytes:
    import numpy as np

    from truetune.logs.read_tensorboard_events import crc32c_checksums, mask_checksum

    def framed(body: bytes) -> bytes:
        def check(data: bytes) -> bytes:
            return struct.pack(
                "<I", mask_checksum(crc32c_checksums(np.frombuffer(data, np.uint8)[None])[0])
            )

        size = struct.pack("<Q", len(body))
        return size + check(size) + body + check(body)

    scalar = b"\x0a\x04loss\x15" + struct.pack("<f", 2.0)
    value = b"\x0a" + bytes([len(scalar)]) + scalar
    return (
        framed(b"\x09" + struct.pack("<d", 1.0) + b"\x10\x01\x2a" + bytes([len(value)]) + value) * 3
    )


def compressed(kind: str, body: bytes) -> bytes:
    import bz2
    import gzip
    import lzma

    import zstandard

    packers: Mapping[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": zstandard.compress,
    }
    return packers[kind](body)


def of_others() -> dict[str, list[Reader]]:
    """Module below truetune -> its readers."""
    array = json.dumps([ROW, TOOL_ROW]).encode()
    header = b'prompt,completion\n"a, b",c\n"d\ne",f\n'
    return {
        "data.read_file_records": [
            Reader("a.jsonl", LINES, _rows),
            Reader("a.csv", header, _rows),
            Reader("a.tsv", header, _rows),
        ],
        "data.parse_json_columns": [
            Reader("t.jsonl", json.dumps(TOOL_ROW).encode() + b"\n", _rows)
        ],
        "data.json_stream_window": [
            Reader("a.json", array, _rows),
            Reader("b.json", b'{"x": 1, "rows": ' + array + b"}", _rows),
        ],
        "data.find_data_files": [
            *(
                Reader(f"a.jsonl.{kind}", compressed(kind, LINES * 50), _rows)
                for kind in ("gz", "bz2", "xz", "zst")
            ),
            Reader("state.json", b'{"_data_files": [{"filename": "a.arrow"}]}', _rows_of_folder),
        ],
        "data.read_parquet_and_arrow_rows": [
            *(
                Reader(f"a.{kind}", parquet_file(kind), _rows)
                for kind in ("parquet", "arrow", "feather")
            ),
            Reader("a.parquet.gz", compressed("gz", parquet_file("parquet")), _rows),
        ],
        "data.split_lines_into_stretches": [Reader("s.jsonl", LINES, _scan)],
        "data.read_predictions": [
            Reader(
                "preds.jsonl", b'{"prompt": "1 + 1?", "prediction": "2", "step": 1}\n', _predictions
            ),
            Reader("preds.csv", b"prompt,prediction\n1 + 1?,2\n", _predictions),
        ],
        "data.unfold_prediction_rows": [
            Reader(
                "folded.json",
                b'{"predictions": ["2", "[\'3\']"], "prompts": ["a", "b"]}',
                _predictions,
            )
        ],
        "tokenized.open_token_cache": [Reader("truetune.json", b'{"tokenizer": "x"}', _cache)],
        "fixing.split_file_by_rows": [
            Reader("f.jsonl", LINES, _fixed),
            Reader("f.json", array, _fixed),
            Reader("f.csv", header, _fixed),
            Reader("f.jsonl.gz", compressed("gz", LINES), _fixed),
        ],
        "fixing.fix_parquet_and_arrow_files": [
            Reader(f"f.{kind}", parquet_file(kind), _fixed) for kind in ("parquet", "arrow")
        ],
        "settings.read_truetune_settings": [
            Reader("truetune.yaml", SETTINGS, _settings),
            Reader("pyproject.toml", b"[tool.truetune]\nmax-length = 5\ndata = ['a']\n", _settings),
        ],
        "settings.located_document": [
            Reader(
                "c.yaml", b"base_model: x\ndatasets:\n  - {path: a, type: chat_template}\n", _config
            ),
            Reader(
                "c.json", b'{"model_name_or_path": "x", "stage": "sft", "dataset": "a"}', _config
            ),
            Reader("c.toml", b'[model]\nname = "x"\n[orchestrator]\ngroup_size = 8\n', _config),
        ],
        "settings.recognise_input_kind": [
            Reader("k.json", array, _kind),
            Reader("k.yaml", SETTINGS, _kind),
        ],
        "settings.stacks.read_columns_of_local_dataset": [
            Reader("k.jsonl", LINES, _columns),
            Reader("k.parquet", parquet_file("parquet"), _columns),
        ],
        "logs.read_jsonl_csv_json_logs": [
            Reader("log.jsonl", b'{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n', _log),
            Reader("metrics.csv", b"step,loss\n1,2.0\n2,1.5\n", _log),
            Reader("train.log", b"{'loss': 2.5, 'epoch': 0.1}\nStep 1 | loss:1.2 lr:2e-5\n", _log),
            Reader("trainer_state.json", json.dumps(STATE).encode(), _log),
        ],
        "logs.parse_printed_records": [
            Reader(
                "printed.log", b"{'loss': 2.5, 'epoch': 0.1}\n{'loss': 1.5, 'epoch': 0.2}\n", _log
            )
        ],
        "logs.stream_console_lines": [Reader("nohup.out", CONSOLE, _log)],
        "logs.read_notebook_and_kaggle_output": [
            Reader("run.ipynb", json.dumps(RUN_NOTEBOOK).encode(), _log)
        ],
        "logs.read_run_log": [
            Reader("checkpoint-2/trainer_state.json", json.dumps(STATE).encode(), _log_of_folder)
        ],
        "logs.refuse_folder_of_several_runs": [
            Reader("trainer_state.json", json.dumps(STATE).encode(), _several)
        ],
        "logs.read_tensorboard_events": [Reader("events.out.tfevents.1", events_file(), _log)],
        "logs.read_wandb_offline_run": [Reader("run-1.wandb", b":W&B\xe1\xbe\0" + bytes(40), _log)],
        "checks.lint": [
            Reader("serve.sh", SHELL, _lint),
            Reader("pod.yaml", POD, _lint),
            Reader("llm.service", b"[Service]\nEnvironment=A=1\nExecStart=vllm serve m\n", _lint),
            Reader(
                "Dockerfile",
                b'FROM vllm/vllm-openai\nCMD ["--model", "m", "--enforce-eager"]\n',
                _lint,
            ),
        ],
        "checks.rank_variables_expanded_on_first_node_only": [
            Reader(
                "job.sbatch",
                b"#!/bin/bash\n#SBATCH --nodes=2\nR=$SLURM_NODEID\n"
                b'srun bash -c "torchrun --nnodes 2 --node_rank=$R train.py"\nsrun ./a.sh\n',
                _lint,
            )
        ],
        "checks.inspect_modelfile": [
            Reader(
                "Modelfile",
                b'FROM ./m\nTEMPLATE """{{ .Prompt }}"""\nPARAMETER stop x\n',
                _modelfile,
            )
        ],
        "source.parsed_source_file": [Reader("train.py", PYTHON, _lint)],
        "source.notebook_code_cells": [Reader("train.ipynb", json.dumps(NOTEBOOK).encode(), _lint)],
        "checkpoint.read_and_check_safetensors_header": [
            Reader("model.safetensors", safetensors_file(), _safetensors, ("BrokenFile",))
        ],
        "checkpoint.read_weight_files_and_faults": [
            Reader("model.safetensors.index.json", WEIGHT_MAP, _weights)
        ],
        "checkpoint.tokens_added_beyond_base": [
            Reader("tokenizer.json", json.dumps(TOKENS).encode(), _tokens)
        ],
        "render.find_tokenizer_folder": [
            Reader("tokenizer_config.json", b'{"chat_template": "{{ messages }}"}', _templates)
        ],
        "memory.matrices_and_parameters_from_config": [
            Reader("config.json", json.dumps(CONFIG).encode(), _architecture)
        ],
        "report.load_results": [Reader("r.json", RESULT, _result)],
        "cli.shared_options": [Reader("flag", b'{"a": [1, 2.5]}', _flag)],
        "cli.plan_gpu_memory_command": [Reader("set", b"16", _set)],
        "generation.answer_parsers_named_by_user": [
            Reader("reply", b'{"a": [1, {"b": 2}]}', _reply, VALUE_ERRORS)
        ],
        "generation.backends.read_server_replies": [Reader("call", b'{"a": [1, {"b": 2}]}', _call)],
        "generation.json_faults_of_answers": [
            Reader("answer", b'{"a": [1, {"b": 2}]} {"c"', _json_fault)
        ],
        "checks.rows.evidence.broken_code": [
            Reader("python", b"```python\nfor i in range(3):\n    print(f'{i}')\n```\n", _code),
            Reader("json", b'```json\n{"a": [1, {"b": 2}]}\n```\n', _code),
        ],
        "data.read_pictures_of_rows": [Reader("a.png", grey_png(4, 4), _pictures)],
        "generation.final_answers": [Reader("answer", b'{"a": [1, {"b": 2}]}', _answer)],
        "checks.config.evidence.facts_from_model_folder": [
            Reader("model.safetensors", safetensors_file(), _vocabulary)
        ],
    }


SWALLOWS = (
    "what can't be read is no answer there, and its reader of files is that of another module that"
    " is fed"
)
WRITES = "reads what truetune itself wrote or ships"
TELLS = "tells files of truetune's own from others: what can't be read is another's"
OF_A_ROW = "text inside of a row that fixing.split_file_by_rows has read, which is fed"
TYPES_ALONE = (
    "the records of a file that checks.lint or checks.inspect_modelfile reads, which are fed"
)
OF_A_FIELD = "a text of a row that data.file_records has read, which is fed; no JSON or literal is no finding"
OWN = {
    "checks.commands.contrast_without_other_texts": TYPES_ALONE,
    "checks.commands.encoded_otherwise_than_trained": TYPES_ALONE,
    "checks.commands.evidence.options_of_python_modules": TYPES_ALONE,
    "data.retrieval_rows": SWALLOWS,
    "data.teacher_predictions": SWALLOWS,
    "checks.commands.command_sampling_distorts_answers": TYPES_ALONE,
    "checks.commands.container_loses_the_trained_weights": TYPES_ALONE,
    "checks.commands.evaluation_starts_before_training_ends": TYPES_ALONE,
    "checks.commands.harness_cuts_few_shot_prompts": TYPES_ALONE,
    "checks.commands.harness_cuts_reasoning": TYPES_ALONE,
    "checks.commands.harness_doubles_bos": TYPES_ALONE,
    "checks.commands.harness_scores_few_rows": TYPES_ALONE,
    "checks.commands.hyperparameter_variable_unused": TYPES_ALONE,
    "checks.commands.launcher_options_after_the_script": TYPES_ALONE,
    "checks.commands.llama_server_divides_its_context": TYPES_ALONE,
    "checks.commands.loop_runs_overwrite_each_other": TYPES_ALONE,
    "checks.commands.loop_variable_unused_by_training": TYPES_ALONE,
    "checks.commands.makefile_line_acts_on_itself_alone": TYPES_ALONE,
    "checks.commands.megatron_schedule_does_not_fit_the_run": TYPES_ALONE,
    "checks.commands.megatron_takes_over_the_old_run": TYPES_ALONE,
    "checks.commands.rotary_base_of_another_model": TYPES_ALONE,
    "checks.commands.server_parser_of_another_family": TYPES_ALONE,
    "settings.stacks.read_megatron_commands": TYPES_ALONE,
    "settings.stacks.read_open_instruct_commands": TYPES_ALONE,
    "checks.commands.checkpoints_evaluated_from_one_cache": SWALLOWS,
    "checks.commands.command_switches_stopping_off": TYPES_ALONE,
    "checks.commands.container_shared_memory_too_small": TYPES_ALONE,
    "checks.commands.final_save_writes_no_weights": TYPES_ALONE,
    "checks.commands.launcher_started_by_each_task": TYPES_ALONE,
    "checks.commands.node_rank_read_once": TYPES_ALONE,
    "checks.commands.nodes_train_apart": TYPES_ALONE,
    "checks.commands.options_cut_from_their_command": TYPES_ALONE,
    "checks.commands.tasks_train_alone": TYPES_ALONE,
    "checks.commands.command_evaluates_overflowing_model_in_float16": TYPES_ALONE,
    "checks.commands.server_casts_to_float16": TYPES_ALONE,
    "checks.commands.server_applies_the_adapter_twice": TYPES_ALONE,
    "checks.commands.server_gets_no_gpu": TYPES_ALONE,
    "checks.commands.server_puts_adapter_on_another_base": TYPES_ALONE,
    "checks.config.demo_data_trained_own_rows_unused": SWALLOWS,
    "checks.config.settings_put_adapter_on_another_base": SWALLOWS,
    "checks.find_adapters_merged_into_weights": SWALLOWS,
    "checks.find_server_replies_cut_at_limit": SWALLOWS,
    "checks.source.evidence.does_script_train_sharded_weights": SWALLOWS,
    "data.tell_training_files_from_predictions": SWALLOWS,
    "rewards.reward_process": "replies of a confined process of ours: tests/rewards/test_process.py",
    "data.row_text_bytes": SWALLOWS,
    "logs.strip_container_log_prefixes": SWALLOWS,
    "checks.source.evidence.script_start_commands_and_reserved_gpus": SWALLOWS,
    "checks.commands.nodes_talk_over_a_local_interface": TYPES_ALONE,
    "checks.modelfile.find_trained_prompt_format_beside": SWALLOWS,
    "evaluation.find_reading_behind_scores_beside_predictions": SWALLOWS,
    "checks.find_training_stages_of_files": SWALLOWS,
    "data.script_rows.row_files_of_script": SWALLOWS,
    "data.script_rows.compute_python_functions_on_known_values": SWALLOWS,
    "data.script_rows.symbolic_run_with_rows": SWALLOWS,
    "checks.source.evidence.eos_after_prompts": SWALLOWS,
    "checks.source.merged_without_its_scale": SWALLOWS,
    "checks.source.words_read_as_missing": SWALLOWS,
    "checks.commands.job_trains_random_weights": TYPES_ALONE,
    "fixing.editable_row_of_file": OF_A_ROW,
    "fixing.row_edits": OF_A_ROW,
    "fixing.parse_json_with_places": OF_A_ROW,
    "fixing.remedies.reshape_rows_for_template": OF_A_ROW,
    "fixing.row_messages_with_paths": OF_A_ROW,
    "fixing.line_diff": "a bound alone",
    "fixing.write_fixed_file_and_change_record": TELLS,
    "fixing.fix_file": "what a broken stream raises, by name",
    "data.guard_output_folder": TELLS,
    "checks.config.served_template_differs": SWALLOWS,
    "checks.source.evidence.served_model_folders": SWALLOWS,
    "checks.source.evidence.serving_template_differs_from_training": TELLS,
    "checks.paths.folder_members": TELLS,
    "source.notebook_commands": "cells of a notebook that source.notebook has read, which is fed",
    "settings.stacks.settings_of_stack_commands": TYPES_ALONE,
    "settings.stacks.options_of_commands": TYPES_ALONE,
    "checks.detect_trainer_and_apply_facts": SWALLOWS,
    "checks.paths.check_by_kind": TYPES_ALONE,
    "settings.stacks.read_verl_commands": TYPES_ALONE,
    "settings.stacks.read_openrlhf_options": TYPES_ALONE,
    "checks.commands.evidence.torchtune_runs": TYPES_ALONE,
    "checks.config.evidence.row_roles_and_dataset_info_role_tags": SWALLOWS,
    "checks.config.evidence.saves_without_gathered_weights": SWALLOWS,
    "checks.rows.tool_calls_break_their_schema": OF_A_FIELD,
    "checks.rows.tool_turns_ignore_each_other": OF_A_FIELD,
    "checks.rows.json_answers_differ_in_form": OF_A_FIELD,
    "rewards.respell_objects": OF_A_FIELD,
    "rewards.rows_for_rewards": OF_A_FIELD,
    "checkpoint.engine_adapter_loaders.read_engine_loaders": "tables of truetune's own, which the package holds",
    "checks.source.evidence.tokenizer_facts_of_published_models": SWALLOWS,
    "checks.source.evidence.model_folder_settings": SWALLOWS,
    "checks.sentence_transformer_folders": SWALLOWS,
    "checks.source.evidence.trial_row_limits_switched_on": SWALLOWS,
    "checks.commands.vllm_adapters_not_switched_on": TYPES_ALONE,
    "checks.commands.server_template_of_another_family": SWALLOWS,
    "checks.config.evidence.read_first_rows_and_count_characters": SWALLOWS,
    "checks.training_settings_in_folder_of_log": SWALLOWS,
    "checks.is_adapter_on_its_trained_base": SWALLOWS,
    "checks.source.pattern_misses_the_answers": OF_A_FIELD,
    "checks.commands.request_skips_the_template": SWALLOWS,
    "checks.commands.server_passes_the_turn_end": SWALLOWS,
    "checks.commands.server_tokenizer_of_another_family": TYPES_ALONE,
    "checks.commands.server_uses_one_of_its_gpus": TYPES_ALONE,
    "checks.source.evidence.prompt_forms": SWALLOWS,
    "checks.source.evidence.turn_ends_missing_from_stop_tokens": SWALLOWS,
    "data.script_rows.cache_script_reads_until_it_changes": SWALLOWS,
    "checks.source.training_computed_in_float32": SWALLOWS,
    "checks.config.chat_model_trained_on_plain_strings": SWALLOWS,
    "checks.log.rows_lost_before_training": SWALLOWS,
    "checks.source.evidence.loop_exits_by_one_process": SWALLOWS,
    "checks.modelfile.modelfile_template_differs": SWALLOWS,
    "checks.find_only_gpu_named_in_files": SWALLOWS,
    "checks.find_servers_with_base_and_adapter": SWALLOWS,
    "checks.source.evidence.models_named_in_requests": SWALLOWS,
    "checks.commands.server_leaves_the_adapter_out": SWALLOWS,
    "checks.commands.base_evaluated_after_training": TYPES_ALONE,
    "checks.commands.evidence.models_used_by_commands": SWALLOWS,
    "checks.commands.evaluates_another_run": TYPES_ALONE,
    "checks.commands.step_takes_the_unmerged_model": TYPES_ALONE,
    "checks.find_merge_quantize_export_commands": SWALLOWS,
    "checks.commands.command_asks_for_the_base": TYPES_ALONE,
    "data.reference_files_beside_answers": SWALLOWS,
    "checks.source.evidence.added_tokens_new_to_model": SWALLOWS,
    "settings.stacks.find_who_reads_config_or_starts_script": SWALLOWS,
    "settings.stacks.removed_arguments": WRITES,
    "evaluation.generate_and_score_in_own_loop": TELLS,
    "settings.release_pins": SWALLOWS,
    "settings.releases_printed_by_notebook": SWALLOWS,
    "settings.has_program_trained_with_these_settings": SWALLOWS,
    "checks.source.evidence.model_dtypes": SWALLOWS,
    "checks.identify_model_by_published_name": SWALLOWS,
    "checks.find_uses_of_weight_folders": SWALLOWS,
    "checks.position_and_attention_overrides": SWALLOWS,
    "checks.source.evidence.layer_numbers_named_and_model_depth": SWALLOWS,
    "checks.source.evidence.held_out_loaders_sharing_training_rows": SWALLOWS,
    "checks.read_files_beside_log": SWALLOWS,
    "checks.host_memory_settings_of_model_loads": SWALLOWS,
    "checks.minimum_host_memory_of_run": SWALLOWS,
    "checks.find_how_launch_distributes_training": SWALLOWS,
    "checks.commands.fsdp_shards_one_unit": TYPES_ALONE,
    "checks.commands.offload_beyond_the_jobs_memory": TYPES_ALONE,
    "checks.commands.deepspeed_buckets_fill_the_gpu": TYPES_ALONE,
    "checks.commands.fsdp_shards_nothing": TYPES_ALONE,
    "checks.gpu_memory_settings_beside_log": SWALLOWS,
    "checks.source.evidence.picture_token_counts": SWALLOWS,
    "checks.commands.lightning_devices_differ_from_tasks": TYPES_ALONE,
    "checks.shell_loops": TYPES_ALONE,
    "checks.tokens_added_by_project": SWALLOWS,
    "checks.commands.nccl_transport_switched_off": SWALLOWS,
    "source.find_source_files": TELLS,
    "checks.commands.each_worker_loads_the_model": TYPES_ALONE,
    "checks.commands.harness_asks_row_by_row": TYPES_ALONE,
    "checks.read_evaluation_harness_commands": TYPES_ALONE,
    "checks.commands.harness_run_without_chat_template": TYPES_ALONE,
    "checks.commands.harness_runs_ask_one_model": TYPES_ALONE,
    "checks.source.evidence.training_row_count_in_notebook_output": "a notebook, read by source.notebook_code_cells",
    "checks.commands.job_gpus_differ_from_processes": TYPES_ALONE,
    "checks.commands.sharding_file_not_read": SWALLOWS,
    "checks.commands.job_trains_overflowing_model_in_float16": SWALLOWS,
    "checks.commands.nodes_wait_for_themselves": TYPES_ALONE,
    "checks.commands.launch_files_contradict": TYPES_ALONE,
    "checks.plan_memory": "commands, whose reader checks.lint is fed through",
    "checks.commands.harness_runs_not_comparable": SWALLOWS,
    "checks.modelfile.modelfile_parameters_unfit": TYPES_ALONE,
    "checks.modelfile.classify_weights_named_by_modelfile": TYPES_ALONE,
    "source.find_command_line_option_values": SWALLOWS,
    "source.settings_files_as_expressions": SWALLOWS,
    "checks.read_settings_in_launch_files": SWALLOWS,
    "checks.find_cpu_offload_of_launcher": SWALLOWS,
    "checks.find_gpus_in_files_beside": SWALLOWS,
    "checks.find_script_line_ranking_pairs": SWALLOWS,
    "checks.find_unread_deepspeed_and_fsdp_settings": SWALLOWS,
    "logs.facts_in_files_beside_log": TYPES_ALONE,
    "checks.log.gpus_mostly_idle": TYPES_ALONE,
    "checks.fsdp_layer_class": SWALLOWS,
    "checks.commands.llama_cpp_built_for_the_cpu": TYPES_ALONE,
    "checks.commands.server_generates_slowly": TYPES_ALONE,
    "checks.commands.server_loads_no_weights": TYPES_ALONE,
    "checks.job_gpus_and_processes": TYPES_ALONE,
    "checks.find_trainings_without_process_group": "commands that start scripts, and the scripts beside the job",
    "checks.find_launchers_repeated_per_task": "commands of srun and mpirun, and scripts beside the job",
    "checks.node_rendezvous": "commands inside of a file that checks.lint reads, which is fed",
    "checks.modelfile.modelfile_serves_the_base": TYPES_ALONE,
    "checks.rule": TYPES_ALONE,
    "checks.vllm_server_commands": TYPES_ALONE,
    "checks.sglang_server_commands": TYPES_ALONE,
    "checks.tgi_server_commands": TYPES_ALONE,
    "checks.detect_base64_and_similar_texts": OF_A_FIELD,
    "checks.rows.escape_sequences_as_text": OF_A_FIELD,
    "checks.rows.evidence.tool_calls": OF_A_FIELD,
    "checkpoint.find_base_model_in_nearby_folders": SWALLOWS,
    "report.rule_pages.read_example": WRITES,
    "report.rule_pages.examples_of_code": WRITES,
    "generation.texts_that_json_parsers_refuse": OF_A_FIELD,
    "settings.advise_unknown_setting": WRITES,
    "encoding.encoded_folder_on_disk": TELLS,
    "encoding.encoded_folder_layout": TELLS,
    "encoding.encoded_folder_in_object_store": TELLS,
    "evaluation.sample_report": TELLS,
    "report.recognise_files_truetune_may_replace": TELLS,
    "settings.settings_schema": TELLS,
    "auditing.listen_to_processes_and_hold_until_judged": "a message of truetune's own child, which knows a key",
    "auditing.recognise_rows_in_text": "half surrogates alone",
    "checks.config.dataset_listed_twice_or_also_evaluated": "text that it made itself",
    "checks.config.new_tokens_left_untrained": SWALLOWS,
    "checks.config.evidence.upper_bound_of_optimizer_steps": SWALLOWS,
    "checks.config.evidence.columns_and_age_of_training_files": SWALLOWS,
    "checks.devices.deepspeed_batch_size_contradicts": SWALLOWS,
    "checks.devices.read_architecture_and_row_count": SWALLOWS,
    "checks.findings_file": WRITES,
    "demo.make_chats": WRITES,
    "demo.plant_faults": WRITES,
    "demo.make_demo_data": WRITES,
    "doctor.gather_environment": WRITES,
    "evaluation.open_training_run_folder": WRITES,
    "generation.backends.http_client": "needs a server; tests/generation feeds it with broken answers",
    "probe.run_record": WRITES,
    "probe.rollout_step": "files that the hook of a run wrote into its temporary folder",
    "rehearsal.rehearsed_run_without_script": WRITES,
    "settings.stacks.known_keys": WRITES,
    "trainers.experts_of_model_types": WRITES,
    "training.save_checkpoints": WRITES,
    "generation.sampling_pass_files": WRITES,
    "viewing.token_rows_of_encoded_folder": WRITES,
    "viewing.row_index": "the readers of data, which are fed",
}
