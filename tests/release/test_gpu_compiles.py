"""The kernels compile for the GPU they are meant for (sm_90): Triton's interpreter accepts what its compiler may not.

No GPU is needed for that; it happens in a process of its own, because elsewhere the tests interpret the kernels.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs torch and triton: pip install 'dpspectral[gpu]'", allow_module_level=True)

PROGRAM = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dpspectral.linalg import gpu_kernels, gpu_pairs
from dpspectral.privacy import gpu_noise, quantile

NEAREST = {"FIRST": quantile.FIRST_CELL, "CELL_BITS": quantile.CELL_BITS, "DEGREE": quantile.DEGREE, "BLOCK": 1024}
PAIRS = {"USERS": 16, "ENTRIES": 32}
KERNELS = [
    (gpu_noise._add_kernel, "*i64 *fp64 *fp64 *i64 *i32 i64", NEAREST),
    (gpu_noise._piece_kernel, "*i64 *fp64 *fp64 *i64 *i32 i32 i32 i64", NEAREST),
    (gpu_pairs._pair_kernel, "*i64 *i32 *i64 *i32 *i64 *i64 *i32 *i32 *i64 i64 i32 i64 i32", PAIRS),
    (gpu_pairs._pair_kernel, "*i64 *i32 *i64 *i32 *i64 *i64 *i32 *i64 *i64 i32 i32 i32 i32", PAIRS),
    *(
        (gpu_kernels._user_kernel, f"*i64 *i32 *i64 {x} {out} i64 i32", {"p": 48, "P": 64, "ENTRIES": 16, "WIDE": wide})
        for x, out, wide in (("*i32", "*i32", False), ("*i64", "*i64", True))
    ),
    (gpu_kernels._item_kernel, "*i32 *i64 *i64 *i32 *i32 *i64", {"p": 48, "P": 64, "ENTRIES": 16}),
]
for kernel, types, constants in KERNELS:
    names = kernel.arg_names
    signature = dict(zip([name for name in names if name not in constants], types.split(), strict=True))
    signature |= dict.fromkeys(constants, "constexpr")
    places = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature={name: signature[name] for name in names}, constexprs=places)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(gpu_kernels.FUSED))
    assert made.asm["cubin"], kernel
    print(kernel.__name__, "red." in made.asm["ptx"])
"""


def test_kernels_compile_for_hopper(tmp_path):
    if importlib.util.find_spec("triton.backends.nvidia") is None:
        pytest.skip("this Triton has no compiler for NVIDIA GPUs")
    settings = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    settings.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert len(lines) == 2 * 7
    assert lines[lines.index("_pair_kernel") + 1] == "True"  # additions that nobody waits for
