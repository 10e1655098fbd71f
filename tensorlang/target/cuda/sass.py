"""SASS, the instructions that a GPU runs, as NVIDIA's disassembler shows a cubin."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tensorlang.errors import InternalError, TargetError
from tensorlang.target.cuda.nvrtc import toolkit_folders, wheel_folders

_TOOL = "nvdisasm"
_WHEEL_FOLDERS = ("cu13/bin", "cu12/bin", "cuda_nvdisasm/bin", "cuda_nvcc/bin")
_SECONDS = 60


def disassembler() -> str | None:
    """The path of nvdisasm: on PATH, in NVIDIA's wheel, or in a CUDA toolkit; None when there is none."""
    found = shutil.which(_TOOL)
    if found:
        return found
    folders = (*wheel_folders(_WHEEL_FOLDERS), *toolkit_folders("bin"))
    return next((path for folder in folders if (path := shutil.which(_TOOL, path=str(folder)))), None)


def sass(cubin: bytes) -> str:
    """The instructions of a cubin; TargetError says what to install when there is no disassembler."""
    tool = disassembler()
    if tool is None:
        raise TargetError(
            "source('sass') needs NVIDIA's nvdisasm, which is not on PATH, in its wheel or under CUDA_PATH: "
            "pip install nvidia-cuda-nvdisasm"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        ran = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if ran.returncode:
        raise InternalError(f"{tool} cannot read a cubin: {ran.stderr.strip()}")
    return ran.stdout
