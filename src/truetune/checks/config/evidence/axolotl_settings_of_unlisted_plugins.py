"""Settings of Axolotl's plug-ins, where `plugins` does not list the plug-in that reads them."""

from __future__ import annotations

from collections.abc import Mapping

from truetune.settings.config import Config

PLUGIN_OF_PREFIX: Mapping[str, str] = {
    "liger_": "axolotl.integrations.liger.LigerPlugin",
    "cut_cross_entropy": "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
    "spectrum_": "axolotl.integrations.spectrum.SpectrumPlugin",
    "kd_": "axolotl.integrations.kd.KDPlugin",
    "grokfast_": "axolotl.integrations.grokfast.GrokfastPlugin",
    "lm_eval_": "axolotl.integrations.lm_eval.LMEvalPlugin",
    "llmcompressor": "axolotl.integrations.llm_compressor.LLMCompressorPlugin",
    "use_scattermoe": "axolotl.integrations.kernels.KernelsPlugin",
    "use_sonicmoe": "axolotl.integrations.kernels.KernelsPlugin",
}
"""How the settings of a plug-in begin -> its class, in Axolotl 0.21"""


def keys_of_unlisted_plugins(config: Config) -> dict[str, list[str]]:
    """The settings of each plug-in of Axolotl's that the file does not list, by the plug-in."""
    if config.stack != "axolotl":
        return {}
    listed = str(config.raw.get("plugins") or "")
    keys_by_plugin: dict[str, list[str]] = {}
    for key, value in config.raw.items():
        plugin = next(
            (name for prefix, name in PLUGIN_OF_PREFIX.items() if key.startswith(prefix)), None
        )
        # A class of one's own may subclass the plug-in, and is known by no name.
        if plugin is None or value in (None, False) or _may_plugin_be_listed(plugin, listed):
            continue
        keys_by_plugin.setdefault(plugin, []).append(key)
    return keys_by_plugin


def _may_plugin_be_listed(plugin: str, listed: str) -> bool:
    """Do the plug-ins hold this one, by its module, or one that is not Axolotl's own?"""
    module = plugin.rpartition(".")[0]
    others = listed.replace("axolotl.integrations.", "").strip("[]'\" ")
    return module in listed or (
        bool(listed) and "axolotl.integrations" not in listed and bool(others)
    )
