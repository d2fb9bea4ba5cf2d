"""Known messages about the loading of models, adapters and tokenizers."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "mismatched-weights-begin-at-random",
        "weights of the checkpoint have another shape than the model's, and ignore_mismatched_sizes=True let them begin"
        " at random",
        r"Some weights of .{1,160} (?:were not initialized|are newly initialized).{0,200}"
        r"because the shapes did not match"
        r"|- ?MISMATCH:?\s.{0,80}ckpt weights were loaded, but they did not match"
        r"|[\w.{}, \[\]]{1,160}\| MISMATCH\b",
        "the checkpoint and the model have different sizes, which ignore_mismatched_sizes=True hides: tokens were added"
        " before training and vocab_size in config.json was not saved with them (embed_tokens, lm_head), the config is"
        " of another model, or a head has another number of labels",
        "leave ignore_mismatched_sizes=True out, and make the sizes equal: the config.json that was saved with the"
        " weights, or vocab_size set to the rows of the saved embedding (the first number of the saved shape); only a"
        " head that is about to be trained may be new",
        "transformers/modeling_utils.py",
        "transformers/utils/loading_report.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "weights-newly-initialized",
        "weights were not in the checkpoint and begin at random",
        r"Some weights of .{1,160} were not initialized from the model checkpoint"
        r"|- ?MISSING:?\s.{0,20}those params were newly initialized|[\w.{}, \[\]]{1,160}\|"
        r" MISSING\b",
        "a checkpoint of another class (a base model as a classifier: expected for its head alone);"
        " keys with a prefix; an adapter's folder or a broken save read as a model; a head that was"
        " not saved",
        "`truetune check CHECKPOINT --base MODEL` names what is missing; only a head that is about"
        " to be trained may be new",
        "transformers/utils/loading_report.py",
        "huggingface/transformers#30381",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "wrapped-weights-not-used",
        "weights of the checkpoint were not used: each key begins with a wrapper's name",
        r"Some weights of the model checkpoint at .{1,200} were not used.{0,120}"
        r"\[['\"](?:_orig_mod|module|_fsdp_wrapped_module|_forward_module)\."
        r"|(?:_orig_mod|module|_fsdp_wrapped_module|_forward_module)\.[\w.{}, \[\]]{1,160}\|"
        r" UNEXPECTED\b",
        "the checkpoint is the state_dict() of a wrapped model (_orig_mod. of torch.compile, module. of DDP): without"
        " the prefix each key may be the model's own; with it none fits, so the weights stay random",
        "the checkpoint is whole: take the prefix off its keys ({name.removeprefix('_orig_mod.'): weight for name,"
        " weight in state.items()}), save it, and run this stage again; save the model under the wrapper"
        " (model._orig_mod, model.module) from now on",
        "transformers/utils/loading_report.py",
        shown="notice",
        severity="error",
    ),
    define_message(
        "weights-not-used",
        "weights of the checkpoint were not used by the model",
        r"Some weights of the model checkpoint at .{1,200} were not used|[\w.{}, \[\]]{1,160}\|"
        r" UNEXPECTED\b",
        "another class or architecture than the checkpoint's",
        "`truetune check CHECKPOINT --base MODEL` names the keys and what they would fit",
        "transformers/utils/loading_report.py",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "state-dict-keys-differ",
        "weights of a checkpoint were left out: its names and the model's differ",
        r".{0,160}_IncompatibleKeys\(missing_keys=\[['\"].{1,4000}unexpected_keys=\[['\"]"
        # Scripts print the two counts in words of their own; that both are above 0 is what counts.
        r"|.{0,160}\b[Mm]issing(?:[_ ]keys)?\W{1,4}[1-9]\d*\b.{1,20}\b[Uu]nexpected(?:[_ ]keys)?\W{1,4}[1-9]\d*\b"
        r"|.{0,80}\b(?:loaded|matched|restored|copied) 0 ?(?:/|of) ?[1-9]\d* (?:tensors|weights|keys|param)"
        r"|.{0,160}\b[1-9]\d* missing\b.{1,20}\b[1-9]\d* unexpected\b",
        "load_state_dict(strict=False) leaves out what does not match; a wrapper put its own name before"
        " each key (model. of a LightningModule, module. of DDP, _orig_mod. of torch.compile); where all"
        " are missing, the model keeps the weights that it had before, random ones after from_config",
        "take the prefix off that the unexpected keys have ('module.', 'model.', '_orig_mod.'):"
        " {name.removeprefix(PREFIX): weight for name, weight in state.items()}, and load with strict=True,"
        " which refuses what does not fit",
        "torch/nn/modules/module.py",
        shown="notice",
        severity="error",
    ),
    define_message(
        "nothing-trainable",
        "no weight of the model is trainable",
        r"trainable params: 0 \|\||trainable%: 0(?:\.0+)?\s*$",
        "an adapter that PeftModel.from_pretrained loaded, which is frozen without is_trainable=True; all"
        " parameters set to requires_grad False after get_peft_model",
        "PeftModel.from_pretrained(model, ADAPTER, is_trainable=True) to train an adapter further; `truetune"
        " lint SCRIPT` shows what freezes it",
        "peft/peft_model.py",
        shown="notice",
        severity="error",
    ),
    define_message(
        "adapter-weights-not-loaded",
        "the adapter's weights were not loaded where keys are missing: there the base answers alone",
        r"Found (?:missing|unexpected) adapter keys while loading the checkpoint"
        r"|Loading adapter weights from .{1,300} led to (?:unexpected|missing) keys (?:not found )?in the model",
        "the base was loaded with another class than in training (AutoModelForCausalLM instead of"
        " AutoModelForImageTextToText), which names its layers otherwise; an adapter saved under"
        " other names (vLLM, another peft, torch.compile)",
        "load the base with the class that it was trained with, or rename the adapter's keys;"
        " `truetune check ADAPTER --base MODEL` names them and what they would fit",
        "peft/peft_model.py",
        "huggingface/peft#2566",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "gated-or-private-repository",
        "the hub refuses the model or data set: no access, or no token",
        r"gated repo|GatedRepoError|RepositoryNotFoundError|401 Client Error|403 Client Error"
        r"|Access to model .{1,120} is restricted|Invalid user(?:name or password| token)"
        r"|Repository Not Found for url",
        "the licence was not accepted on the model's page; no login on this machine (a job's home"
        " is another); a name with a typo",
        "accept the licence on the model's page, then `hf auth login` (or HF_TOKEN in the job); or"
        " name a local folder: `truetune check FOLDER` says what one holds",
        "transformers/utils/hub.py",
        "huggingface_hub/errors.py",
    ),
    define_message(
        "hub-not-reachable",
        "the hub can't be reached from this machine",
        r"We couldn't connect to|LocalEntryNotFoundError|OfflineModeIsEnabled|Max retries exceeded"
        r" with url"
        r"|Failed to (?:establish a new connection|resolve)|Temporary failure in name"
        r" resolution|ConnectTimeout"
        r"|ReadTimeout|Name or service not known|429 Client Error|HTTPError: 5\d\d",
        "a compute node without network; a proxy; too many requests",
        "download on a machine with network (`hf download MODEL`), copy the cache, and set"
        " HF_HUB_OFFLINE=1",
        "transformers/utils/hub.py",
        "huggingface_hub/errors.py",
    ),
    define_message(
        "not-a-model",
        "the path is neither a local folder of a model nor a name on the hub",
        r"is not a local folder and is not a valid model identifier|Can't load tokenizer for"
        r"|Can't load the (?:model|config)|does not appear to have a file named|Repo id must (?:be"
        r" in the form"
        r"|use alphanumeric)|no file named .{0,80}(?:safetensors|bin|config\.json)"
        r"|Can't find 'adapter_config\.json'|Unrecognized model in|HFValidationError",
        "a typo; a path that is relative to another folder; a run's folder instead of its"
        " checkpoint; an adapter's folder as a model, or the other way round; a checkpoint that is still in"
        " shards (pytorch_model_fsdp_0 of FSDP, global_step* of DeepSpeed)",
        "`truetune check PATH` says what the folder holds; shards of FSDP become one model with `accelerate"
        " merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUT`, those of DeepSpeed with the checkpoint's own"
        " zero_to_fp32.py",
        "transformers/utils/hub.py",
        "transformers/modeling_utils.py",
    ),
    define_message(
        "architecture-not-known",
        "the installed transformers is too old for this model, or too new for this code",
        r"does not recognize this architecture|Tokenizer class \w+ (?:does not exist or )?is not"
        r" currently imported"
        r"|Unrecognized configuration class|KeyError:"
        r" '(?:qwen\w*|llama\w*|gemma\w*|phi\w*|mistral\w*|glm\w*"
        r"|deepseek\w*)'$|`rope_scaling` must be a dictionary|data did not match any variant of"
        r" untagged enum \w+"
        r"|cannot import name '\w+' from 'transformers",
        "the model is younger than the installed transformers or tokenizers; or the code is older"
        " than it",
        "`truetune doctor` lists versions; `pip install -U transformers tokenizers` in the"
        " environment of the run",
        "transformers/models/auto/configuration_auto.py",
        "huggingface/transformers#31789",
    ),
    define_message(
        "remote-code-refused",
        "the model brings code of its own, which was not allowed to run",
        r"trust_remote_code=True|execute (?:the )?custom code|contains custom code which must be"
        r" executed",
        "trust_remote_code is not set; the class was added to transformers later, so a newer"
        " release may need none",
        "read the repository's code, then pass trust_remote_code=True (pin it with revision=); or"
        " `pip install -U transformers`, which may know the model",
        "transformers/dynamic_module_utils.py",
    ),
    define_message(
        "safetensors-header",
        "a weights file is not what it says: cut off, empty, or a pointer of git-lfs",
        r"Error while deserializing"
        r" header|SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader"
        r"|invalid load key, 'v'|PytorchStreamReader failed|unpickling stack underflow"
        r"|Unable to load weights from pytorch checkpoint|incomplete metadata, file not fully"
        r" covered",
        "an interrupted download or save (disk full, job ended), or a clone without git-lfs: files"
        " of about 130 bytes; seldom more than 100 MB of header (over a million tensors in one"
        " file)",
        "`truetune check FOLDER` names the broken file; download it again (`git lfs pull`, `hf"
        " download MODEL`), or take the checkpoint before",
        "codefuse-ai/MFTCoder#20",
        "huggingface/diffusers#5520",
        "safetensors/safetensors#668",
    ),
    define_message(
        "adapter-targets-not-found",
        "the LoRA targets name no layer of this model",
        r"[Tt]arget modules .{1,400} not found in the base model|No modules were targeted for"
        r" adaptation"
        r"|Please specify `target_modules`|Target module .{1,300} is not supported",
        "names of another family (q_proj, query_key_value, c_attn, qkv_proj)",
        "target_modules='all-linear'; `truetune check SETTINGS` compares the names with the model",
        "peft/tuners/tuners_utils.py",
    ),
    define_message(
        "quantized-model-on-another-gpu",
        "every process loads the quantized model onto the same GPU, which is not its own",
        r"loaded in 8-bit or 4-bit precision on a different device than the one",
        "device_map={'': 0}, or a device_map that names no process, in a script that runs as several",
        "load it with device_map={'': int(os.environ['LOCAL_RANK'])} (or PartialState().process_index), so that each"
        " process has it on its own GPU",
        "accelerate/accelerator.py",
        "huggingface/accelerate#2713",
    ),
    define_message(
        "quantized-model-not-trainable",
        "a quantized model can't be trained as it is",
        r"cannot perform fine-tuning on purely quantized models"
        r"|that quantization method do(?:es)? not support training"
        r"|can't train a model that has been loaded in 8-bit or 4-bit|`\.to` is not supported for"
        r" `(?:4|8)-bit`"
        r"|Calling `(?:cuda|to)\(\)` is not supported for",
        "no adapter was attached; the model was loaded for another device than that of the process;"
        " a format made for inference alone (GPTQ without a trainable backend, GGUF, FP8)",
        "attach LoRA (get_peft_model or peft_config=), load with device_map={'':"
        " PartialState().process_index} in a distributed run; `truetune lint SCRIPT`",
        "transformers/trainer_utils.py",
        "accelerate/accelerator.py",
    ),
    define_message(
        "adapter-on-an-adapter",
        "an adapter is put on a model that has one already",
        r"You are trying to modify a model with PEFT for a second time|already (?:has|found) a"
        r" `?peft_config`?"
        r"|You passed a `PeftModel` instance together with a `peft_config`"
        r"|Adapter with name .{1,60} already exists",
        "get_peft_model twice, a cell that was run again, or a peft_config given to the trainer"
        " beside a PEFT model",
        "give the trainer the plain model with peft_config=, or the PEFT model without; load the"
        " base again in a notebook; `truetune lint SCRIPT`",
        "peft/tuners/tuners_utils.py",
        "peft/mapping_func.py",
        "trl/trainer/sft_trainer.py",
    ),
    define_message(
        "tokenizer-file-missing",
        "a file that the loader needs is missing beside the model",
        r"stat: path should be string, bytes, os\.PathLike or integer, not NoneType|not a string$"
        r"|expected str, bytes or os\.PathLike object, not NoneType|Unable to load vocabulary from"
        r" file"
        r"|requires the (?:SentencePiece|sentencepiece|tiktoken|protobuf) library"
        r"|Couldn't instantiate the backend tokenizer",
        "tokenizer.model or vocab.json was not saved with the model, or sentencepiece or tiktoken"
        " is not installed",
        "`truetune check FOLDER` says what of the tokenizer is there; save it with "
        "tokenizer.save_pretrained(FOLDER); `pip install sentencepiece tiktoken protobuf`",
        "transformers/tokenization_utils_base.py",
    ),
)
"""By how special they are"""
