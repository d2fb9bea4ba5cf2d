"""`truetune train` of this release: labels by the inference contract, pads by position, long examples left out."""

from __future__ import annotations

from truetune.package import __version__
from truetune.trainers.trainer_fact_types import CutOfLongRows, Fact, Learning, TrainerFacts

PAD = "truetune/training/prepare_tokenizer.py"
FACTS = TrainerFacts(
    name="truetune",
    family="truetune {release}",
    title="truetune {release}",
    package="truetune",
    # Of this very package: a fact that changes here must change the code, and the tests compare the
    # two.
    release=__version__,
    proof="run",
    calls=("truetune.train",),
    learns=Fact(
        Learning(
            {
                "chat": "assistant",
                "prompt-completion": "completion",
                "instruction": "assistant",
                "text": "all",
            }
        ),
        "truetune/render/inference_contract.py",
        "plan_examples",
    ),
    finds_answers_by=Fact("contract", "truetune/render/inference_contract.py", "plan_examples"),
    pads_masked_by=Fact("position", "truetune/collate.py", "PaddingCollator"),
    pads_on=Fact("right", PAD, "_choose_pad_token"),
    # One that ends nothing, for other people's code downstream may mask by id.
    missing_pad=Fact("chosen", PAD, "_choose_pad_token"),
    clashing_pad=Fact("replaced", PAD, "_choose_pad_token"),
    appends_eos=Fact(
        frozenset(), "truetune/render/template_probes.py", "Probes.renderer (append_eos)"
    ),
    doubles_bos=Fact(True, "truetune/render/renderer.py", "Renderer._render_text_row"),
    stops_learned=Fact("turn", "truetune/render/inference_contract.py", "plan_examples"),
    cut=Fact(
        # Not cut: a row that is cut in its answer teaches not to stop. It is left out, and counted.
        CutOfLongRows(2048, "max_length", "count", "dropped"),
        "truetune/training/default_settings.py",
        "DEFAULT_MAX_LENGTH",
    ),
    template=Fact("tokenizer", "truetune/render/template_probes.py", "make_probes"),
    as_served=Fact(True, "truetune/settings/run_spec.py", "RunSpec.history"),
    file_truncation=Fact("removed", "truetune/render/tokenizer.py", "load_tokenizer"),
    prepares_model=Fact(True, "truetune/training/enlarge_embeddings.py", "fit_embedding_to_ids"),
    packs=Fact("best-fit", "truetune/training/training_recipe.py", "_packing_and_max_length"),
    shuffles=Fact(True, "truetune/training/setting_conflicts.py", "shuffle"),
)
