"""Finds the settings that bound how many requests a server works on at once, and how to raise each."""

from __future__ import annotations

from collections.abc import Iterable

from truetune.logs.console.running_and_waiting_requests import ServerCap
from truetune.logs.facts_in_files_beside_log import FilesBeside, SettingBeside
from truetune.logs.run_log import RunLog

SETTING_OF_SERVER = {
    "vLLM": "max_num_seqs",
    "SGLang": "max_running_requests",
    "TGI": "max_batch_size",
    "Ollama": "OLLAMA_NUM_PARALLEL",
    "llama.cpp": "parallel",
}
HOW_TO_RAISE = {
    "max_num_seqs": "leave --max-num-seqs out (the default is 128 and more), or set it to 64",
    "max_running_requests": "leave --max-running-requests out: the cache then decides, or set it to 64",
    "max_batch_size": "leave --max-batch-size out: the memory then decides, or set it to 64",
    "OLLAMA_NUM_PARALLEL": (
        "set OLLAMA_NUM_PARALLEL to the requests that come together (each has a num_ctx of its own in the cache), or"
        " serve many users by vLLM"
    ),
    "parallel": (
        "start llama-server with -np 8, and -c eight times as large (the context is shared out among the slots)"
    ),
}
SPELLED = {
    "max_num_seqs": "max_num_seqs",
    "max_running_requests": "max_running_requests",
    "max_batch_size": "max_batch_size",
    "OLLAMA_NUM_PARALLEL": "OLLAMA_NUM_PARALLEL",
    "parallel": "the number of slots (-np)",
}
SAME_SETTING = {"OLLAMA_NUM_PARALLEL": ("OLLAMA_NUM_PARALLEL", "parallel")}
"""Ollama's runner is llama.cpp's, which prints its slots by its own names"""


def concurrency_setting_of_server_log(log: RunLog) -> str:
    """The setting of a log's server that bounds its requests; empty where the server is not known."""
    return SETTING_OF_SERVER.get(log.inference_server_name, "")


def find_smallest_cap_in_server_log(log: RunLog) -> ServerCap | None:
    """The cap that a server's log prints: the smallest of the names that the server knows."""
    setting = concurrency_setting_of_server_log(log)
    if not setting or log.output is None:
        return None
    names = SAME_SETTING.get(setting, (setting,))
    caps = [cap for cap in log.output.served.caps if cap.setting in names]
    return min(caps, key=lambda cap: cap.value, default=None)


def find_setting_beside_with_cap(log: RunLog, value: int) -> SettingBeside | None:
    """The line of a file beside the log that sets its server's cap to this value."""
    names = SAME_SETTING.get(
        concurrency_setting_of_server_log(log), (concurrency_setting_of_server_log(log),)
    )
    return _first_setting_with_value(log.files_beside, names, value)


def _first_setting_with_value(
    files: FilesBeside, names: Iterable[str], value: int
) -> SettingBeside | None:
    """The first of these settings that has this value."""
    return next((one for one in files.settings_named(*names) if one.value == value), None)
