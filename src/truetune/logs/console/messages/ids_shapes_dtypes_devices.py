"""Known messages about ids, shapes, dtypes and devices of tensors."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "ids-beyond-the-embedding",
        "a token id, or a position, lies beyond the rows of an embedding",
        r"index out of range in self|srcIndex < srcSelectDimSize|vectorized_gather_kernel"
        r"|IndexKernel.{0,200}index out of bounds",
        "tokens were added to the tokenizer and the model's embedding was not resized; the"
        " tokenizer belongs to another model; the pad token has an id of its own beyond the"
        " vocabulary; or rows are longer than the model has positions",
        "compare tokenizer and model with `truetune check MODEL` and the rows with `truetune check"
        " DATA -t TOKENIZER`; then model.resize_token_embeddings(len(tokenizer)), or a max_length"
        " that the model can take",
        "aten/src/ATen/native/cuda/Indexing.cu",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
        "huggingface/transformers#11102",
    ),
    define_message(
        "ids-beyond-the-embedding-on-the-gpu",
        "a token id, or a position, lies beyond the rows of an embedding",
        r".{0,120}(?:Indexing|IndexKernel|Embedding"
        r"|ScatterGatherKernel)\w*\.cu:\d+:.{0,200}Assertion `?.{0,160}failed",
        "tokens were added to the tokenizer and the model's embedding was not resized; the"
        " tokenizer belongs to another model; or rows are longer than the model has positions",
        "compare tokenizer and model with `truetune check MODEL` and the rows with `truetune check"
        " DATA -t TOKENIZER`; then model.resize_token_embeddings(len(tokenizer)), or a max_length"
        " that the model can take",
        "aten/src/ATen/native/cuda/Indexing.cu",
        "huggingface/transformers#11008",
        shown="end",
    ),
    define_message(
        "masked-labels-decoded",
        "ids below 0 are decoded, which no tokenizer has a text for: -100 of the labels, or of padded predictions",
        r"OverflowError: (?:out of range integral type conversion attempted|can't convert negative int to"
        r" unsigned)|TypeError: argument 'ids': .{0,80}-100",
        "labels mask prompts and padding by -100, and Trainer pads predictions of different lengths with -100 as"
        " well; tokenizer.decode and batch_decode take ids from 0 up",
        "put the pad token there before decoding: labels = np.where(labels != -100, labels,"
        " tokenizer.pad_token_id), and the same for predictions; of a tensor labels.masked_fill(labels == -100,"
        " tokenizer.pad_token_id)",
        "huggingface/transformers#22634",
        "huggingface/transformers#27714",
    ),
    define_message(
        "labels-beyond-the-classes-on-the-gpu",
        "a label lies beyond the vocabulary (or the classes) that the loss knows",
        r".{0,120}(?:Loss|ClassNLL|NLLLoss)\w*\.cu:\d+:.{0,200}Assertion `?.{0,160}failed",
        "labels made with another tokenizer or with added tokens; a mask value other than -100; a"
        " classification head with fewer classes (num_labels) than the data",
        "see which labels are out of range with `truetune run -- CMD`, and compare the tokenizer"
        " with `truetune check MODEL`; mask with -100; set num_labels",
        "aten/src/ATen/native/cuda/NLLLoss2d.cu",
        "pytorch/pytorch#1204",
        shown="end",
    ),
    define_message(
        "labels-beyond-the-classes",
        "a label lies beyond the vocabulary (or the classes) that the loss knows",
        r"Target -?\d+ is out of bounds|Class values must be smaller than num_classes|t >= 0 && t <"
        r" n_classes",
        "labels made with another tokenizer or with added tokens; a mask value other than -100; a"
        " classification head with fewer classes (num_labels) than the data",
        "compare tokenizer and model with `truetune check MODEL`; mask with -100; set num_labels",
        "aten/src/ATen/native/LossNLL.cpp",
    ),
    define_message(
        "device-side-assert",
        "a check inside a GPU kernel failed: an id or a label out of range, or numbers that are not"
        " finite",
        r"device-side assert triggered|CUBLAS_STATUS_NOT_INITIALIZED",
        "most often token ids beyond the embedding (added tokens, another model's tokenizer) or"
        " labels beyond the vocabulary; the traceback shows a later place, because kernels run on"
        " their own",
        "run once with CUDA_LAUNCH_BLOCKING=1 or on the CPU (use_cpu=True), which names the place;"
        " compare tokenizer and model with `truetune check MODEL`, the rows with `truetune check"
        " DATA -t TOKENIZER`",
        "c10/cuda/CUDAException.cpp",
        "pytorch/pytorch#55027",
        refined_by=("ids-beyond-the-embedding-on-the-gpu", "labels-beyond-the-classes-on-the-gpu"),
    ),
    define_message(
        "illegal-memory-access",
        "a GPU kernel read outside its memory",
        r"illegal memory access was encountered|CUDA error: misaligned address"
        r"|CUDA error: unspecified launch failure",
        "a kernel of flash-attn, xformers, bitsandbytes or triton that does not fit this GPU or"
        " torch; an index out of range; a faulty GPU",
        "run once with CUDA_LAUNCH_BLOCKING=1; try attn_implementation='sdpa'; `truetune doctor`"
        " lists versions that do not fit",
        "pytorch/pytorch#21819",
    ),
    define_message(
        "embedding-size-mismatch",
        "the checkpoint has another number of tokens than the model that it is loaded into",
        r"size mismatch for [\w.]*(?:embed_tokens|lm_head|wte|word_embeddings|embed_in|embed_out"
        r"|embeddings)[\w.]*",
        "tokens were added before training and not before loading, or the other way round; an"
        " adapter of a model whose embedding was resized",
        "load the checkpoint's own tokenizer and call model.resize_token_embeddings(len(tokenizer))"
        " before the adapter or the weights are loaded; `truetune check CHECKPOINT --base MODEL`"
        " compares both",
        "torch/nn/modules/module.py",
        "huggingface/peft#1457",
    ),
    define_message(
        "size-mismatch",
        "weights of another shape than the model's",
        r"size mismatch for [\w.]+|ignore_mismatched_sizes|Trying to set a tensor of shape .{0,80}"
        r" in \"weight\""
        r"|shapes? mismatch.{0,80}checkpoint",
        "a checkpoint of another model, size or adapter rank (r); a 4-bit checkpoint read as a"
        " plain one; shards of ZeRO-3 saved as empty tensors (torch.Size([0]))",
        "`truetune check CHECKPOINT --base MODEL` names the tensors that differ",
        "torch/nn/modules/module.py",
        "huggingface/peft#1443",
    ),
    define_message(
        "missing-or-unexpected-keys",
        "the names of the weights do not fit the model",
        r"Error\(s\) in loading state_dict|(?:Missing|Unexpected) key\(s\) in state_dict",
        "a prefix (module., base_model.model., _orig_mod.) of another wrapper; an adapter loaded as"
        " a model or for another base; another architecture",
        "`truetune check CHECKPOINT --base MODEL` names the keys and the prefix",
        "torch/nn/modules/module.py",
    ),
    define_message(
        "batch-rows-of-different-length",
        "rows of one batch have different lengths, and nothing pads them",
        r"Unable to create tensor, you should probably activate truncation"
        r"|expected sequence of length \d+ at dim \d+|stack expects each tensor to be equal size"
        r"|too many dimensions 'str'|excessive nesting|Unable to convert output .{0,80} to (?:a"
        r" )?tensor"
        r"|setting an array element with a sequence",
        "a collator that does not pad labels (DataCollatorWithPadding pads inputs alone); columns"
        " with text among the inputs; texts tokenized without truncation",
        "use DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100) or "
        "truetune.PaddingCollator.of(tokenizer); `truetune lint SCRIPT` checks collator and"
        " columns",
        "transformers/tokenization_utils_base.py",
        "huggingface/transformers#15505",
    ),
    define_message(
        "batch-size-of-logits-and-labels",
        "logits and labels have different lengths",
        r"Expected input batch_size \(\d+\) to match target batch_size|Expected target size \[",
        "labels that are shorter or longer than the inputs (shifted by hand, padded apart), or a"
        " prompt-tuned model whose virtual tokens are not in the labels",
        "give labels of the same length as input_ids, unshifted; `truetune lint SCRIPT` finds"
        " labels that are shifted by hand, `truetune run -- CMD` shows a batch",
        "torch/nn/functional.py",
    ),
    define_message(
        "matrix-shapes",
        "two layers do not fit together",
        r"mat1 and mat2 shapes cannot be multiplied|size mismatch, m1:|mat1 dim 1 must match mat2"
        r" dim 0",
        "a 4-bit model used without its quantization (weights of shape [n, 1]); an adapter of"
        " another model size; a head for another hidden size; DataParallel over a quantized model",
        "start one process with one GPU (CUDA_VISIBLE_DEVICES=0) to exclude DataParallel; `truetune"
        " check ADAPTER --base MODEL` compares shapes",
        "aten/src/ATen/native/LinearAlgebra.cpp",
        "bitsandbytes-foundation/bitsandbytes#600",
        "bitsandbytes-foundation/bitsandbytes#162",
    ),
    define_message(
        "tensor-sizes",
        "tensors of different sizes were put together",
        r"The size of tensor a \(\d+\) must match the size of tensor b"
        r"|The expanded size of the tensor \(\d+\) must match|Sizes of tensors must match except"
        r"|shape '.{1,60}' is invalid for input of size|shape mismatch: value tensor",
        "rows longer than the positions of the model or of its attention mask; logits and labels"
        " that were cut differently; a cache from another batch",
        "check the lengths with `truetune check DATA -t TOKENIZER --max-length N`, N at most the"
        " model's max_position_embeddings",
        "aten/src/ATen/ExpandUtils.cpp",
    ),
    define_message(
        "dtypes-do-not-fit",
        "tensors of different dtypes were put together",
        r"expected (?:m1 and m2|mat1 and mat2|scalar type|self and mat2) .{0,80}(?:same dtype|but"
        r" (?:found|got))"
        r"|must have the same dtype|expected scalar type|Input type .{0,60} and (?:weight|bias)"
        r" type"
        r"|Index put requires the source and destination dtypes match|Unsupported dtype .{0,40}for"
        r" flash"
        r"|query, key, and value to have the same dtype",
        "an adapter or a head in float32 beside a base in bfloat16, used without autocast (often in"
        " generate() within a training script); prepare_model_for_kbit_training raises norms to"
        " float32",
        "set bf16=True in the arguments, wrap generation in torch.autocast('cuda',"
        " dtype=torch.bfloat16), or load with dtype=torch.bfloat16; `truetune check CHECKPOINT`"
        " lists the dtypes",
        "aten/src/ATen/native/cuda/Blas.cpp",
        "huggingface/peft#88",
    ),
    define_message(
        "two-devices",
        "tensors lie on different devices",
        r"Expected all tensors to be on the same device|tensors? (?:is|are) on"
        r" (?:different|cpu).{0,60}(?:cuda"
        r"|device)|Cannot copy out of meta tensor|Tensor on device meta"
        r"|Attempted to access the data pointer on an invalid",
        "inputs that were not moved to the model's device; device_map='auto' beside Trainer or"
        " Accelerator; weights that were offloaded (meta)",
        "remove device_map where Trainer or Accelerator places the model; inputs.to(model.device)"
        " for generate(); `truetune lint SCRIPT` finds device maps in distributed scripts;"
        " `truetune plan SETTINGS --gpu {gpu}` whether the model fits without offloading",
        "aten/src/ATen/core/adaption.cpp",
        "huggingface/transformers#24410",
    ),
    define_message(
        "not-implemented-for-half",
        "this operation does not exist in half precision on this device",
        r"not implemented for '(?:Half|BFloat16|Float8\w*|Char|Byte)'",
        "a model in float16 on the CPU (no GPU was found, or weights were offloaded), or an old"
        " torch",
        "`truetune doctor` says whether torch sees the GPU; on the CPU load with"
        " dtype=torch.float32 or bfloat16",
        "aten/src/ATen/Dispatch.h",
        "huggingface/transformers#27769",
    ),
)
"""By how special they are"""
