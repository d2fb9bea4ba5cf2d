"""Known messages about packages that are missing, broken, or do not fit one another."""

from __future__ import annotations

from truetune.logs.console.messages.known_message import define_message

MESSAGES = (
    define_message(
        "bitsandbytes-without-gpu",
        "bitsandbytes has no GPU code here",
        r"bitsandbytes was compiled without GPU support|'NoneType' object has no attribute"
        r" 'c(?:adam|quantize"
        r"|dequantize|get)\w*'|None of the available devices .{1,120} are supported by the"
        r" bitsandbytes"
        r"|libbitsandbytes_cpu\.so: undefined symbol|CUDA Setup failed despite (?:GPU|CUDA) being"
        r" available"
        r"|Could not find the bitsandbytes CUDA binary",
        "no GPU that torch sees; a bitsandbytes without a build for this CUDA",
        "`truetune doctor` lists GPU, CUDA and packages; `pip install -U bitsandbytes`, then"
        " `python -m bitsandbytes`; without a GPU: no 4-bit or 8-bit, optim='adamw_torch'",
        "bitsandbytes-foundation/bitsandbytes#719",
        "bitsandbytes-foundation/bitsandbytes#26",
        "transformers/integrations/bitsandbytes.py",
    ),
    define_message(
        "bitsandbytes-warned",
        "bitsandbytes has no GPU code here: 4-bit, 8-bit and its optimizers will fail",
        r"The installed version of bitsandbytes was compiled without GPU support",
        "no GPU that torch sees; a bitsandbytes without a build for this CUDA",
        "`truetune doctor` lists GPU, CUDA and packages; `pip install -U bitsandbytes`",
        "bitsandbytes-foundation/bitsandbytes#719",
        shown="notice",
        severity="warning",
    ),
    define_message(
        "flash-attention-not-usable",
        "flash-attn is not installed, or does not fit this torch",
        r"FlashAttention\d? has been toggled on|No module named 'flash_attn"
        r"|flash_attn\w*\.so.{0,80}undefined symbol|flash_attn_2_cuda"
        r"|FlashAttention only support(?:s)? fp16 and bf16|Flash Attention 2\.0 only supports"
        r" torch\.(?:float16"
        r"|bfloat16)|flash_attn seems to be not installed|FlashAttention forward only supports head"
        r" dimension",
        "attn_implementation='flash_attention_2' without the package; a wheel for another torch; a"
        " model in float32",
        "attn_implementation='sdpa' needs no package; else load with dtype=torch.bfloat16 and"
        " install a flash-attn built for this torch (`truetune doctor` lists versions)",
        "transformers/modeling_utils.py",
        "Dao-AILab/flash-attention#966",
    ),
    define_message(
        "compile-failed",
        "torch.compile or Triton could not build a kernel",
        r"torch\._dynamo\.exc\.\w+|BackendCompilerFailed|InductorError|triton\.\w[\w.]*Error|TritonMissing"
        r"|Failed to find C compiler|cannot find -lcuda|Cannot find a working triton installation"
        r"|OutOfResources: out of resource: shared memory|PassManager::run failed|Python\.h: No"
        r" such file"
        r"|FailOnRecompileLimitHit",
        "no C compiler or Python headers in the container; a triton of another torch; a kernel too"
        " large for this GPU; shapes that change at each step",
        "torch_compile=False, or TORCHDYNAMO_DISABLE=1, to continue; `apt-get install gcc python3-dev`"
        " for `Python.h`; `truetune doctor` lists versions",
        "torch/_dynamo/exc.py",
        "triton-lang/triton#8182",
        "pytorch/pytorch#103417",
    ),
    define_message(
        "undefined-symbol",
        "a package was compiled for another torch",
        r"undefined symbol:|DLL load failed|version `GLIBC\w*_[\d.]+' not found|cannot open shared"
        r" object file"
        r"|ABI mismatch|libcudart\.so|libnvJitLink|libcublas|libcudnn",
        "torch was updated after flash-attn, xformers, bitsandbytes, torchvision or torchaudio; or"
        " two CUDA runtimes are mixed in LD_LIBRARY_PATH",
        "`truetune doctor` lists what does not fit; install the package again with `pip install"
        " --no-cache-dir --force-reinstall --no-deps PACKAGE`, and unset LD_LIBRARY_PATH",
        "pytorch/pytorch#111469",
        "Dao-AILab/flash-attention#975",
    ),
    define_message(
        "numpy-abi",
        "a package was compiled for another NumPy",
        r"numpy\.dtype size changed|A module that was compiled using NumPy 1\.x cannot be run in"
        r" NumPy 2"
        r"|numpy\.core\.multiarray failed to import|_ARRAY_API not found|Numpy is not available",
        "NumPy 2 beside packages built for NumPy 1",
        "`pip install -U pandas pyarrow scikit-learn`, or `pip install 'numpy<2'`; `truetune"
        " doctor`",
        "numpy/numpy#26191",
    ),
    define_message(
        "package-version",
        "two packages do not fit one another",
        r"is required for a normal functioning of this module|requires"
        r" (?:accelerate|peft|transformers|trl"
        r"|bitsandbytes|datasets|torch)[ >=<]+[\d.]+|Using the `Trainer` with `PyTorch` requires"
        r" `accelerate"
        r"|Using `low_cpu_mem_usage=True` .{0,60}requires Accelerate|operator torchvision::nms does"
        r" not exist"
        r"|VersionConflict|DistributionNotFound",
        "a package that is too old or too new for the others",
        "`truetune doctor` lists versions that misbehave together; `pip check`",
        "transformers/utils/versions.py",
    ),
    define_message(
        "package-missing",
        "a package is not installed in the environment of the run",
        r"ModuleNotFoundError: No module named|ImportError: .{0,160}(?:requires? the .{1,60}"
        r" library"
        r"|is not installed|needs? to be installed|pip install)|PackageNotFoundError",
        "the run uses another interpreter than the one in which packages were installed; an extra"
        " that was left out",
        "`python -m pip install PACKAGE` with the interpreter of the run; `truetune doctor` names"
        " that interpreter",
        "docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
    ),
)
"""By how special they are"""
