"""Every tutorial runs as it stands, in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.autotune.cluster.workers import FORKING
from tests.forked_workers import Spawners

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


SHOWN = {
    "01_custom_operator": (
        "parallel i_o in range(4)",
        "IllegalParallel: s['C.local'].parallel('k')",
        "float32: equal to NumPy",
        "int32: equal to NumPy",
    ),
    "03_legality": (
        "IllegalParallel: s['B'].parallel('k_o')",
        "s['B.rf'].parallel('k_o')",
        "UncoveredRead: s['P'].compute_at(s['Q'], 'i_o')",
        "every element computed 1.09 times on average",
        "IllegalOrder: s['jacobi'].reorder('t_o', 'i_o', 'j_o', 't_i', 'i_i', 'j_i')",
        "fails exactly when steps >= 2 and n >= 10",
        "legal: s = te.create_schedule(outputs); s['jacobi'].skew('j', by='t', factor=1); ",
        "\ns['jacobi'].reorder('t_o', 'i_s_o', 'j_s_o', 't_i', 'i_s_i', 'j_s_i')",
        "tiled in time: equal to plain Python, bit for bit",
        "jacobi.i_s_o  sequential: carries flow, anti and output through U; permutable with the loop around it",
        "the schedule is strict: floating-point updates of one element keep the order of the program",
        "legal: s.assume('injective', 'where'); s['scatter'].parallel('i')",
        "where is not injective, as the schedule assumes: where[3] and where[5] are both 2",
        "tensorlang check time_tiling.py:without_skew ends with 1\nIllegalOrder: s['jacobi'].tile_by",
        "tensorlang check time_tiling.py:with_skew ends with 0\nwith_skew: legal",
    ),
    "04_time_tiling": (
        "seidel.j  sequential: carries flow and anti through A",
        "s['seidel'].tile_by(['t', 'i', 'j'], [[1, 0, 0], [1, 1, 0], [2, 1, 1]], [4, 8, 8])",
        "time_tiling.svg: 96 points",
        "s['seidel'].skew('j_tile_s', by='i_tile', factor=1)",
        "seidel.t_tile [parallel]  parallel: no dependence between its iterations",
        "tiled, in waves, on two threads: equal to plain Python, bit for bit",
        "s['seidel'].skew('j_s', by='i_s', factor=1)",
        "auto_order: equal to plain Python, bit for bit",
    ),
    "05_matmul_to_the_limit": (
        "one core: ",
        "\nplain loops ",
        "\nvectors along j ",
        "\na tile in registers ",
        "\nblocks of columns ",
        "\nB in panels ",
        "\nblocks in parallel ",
        "\ntopi.schedule ",
        "% of the peak\n",
        "s['C'].compute_at(s['relu'], 'j_",
    ),
    "07_template_free": (
        "4 trials, failures: none",
        "6 trials (4 resumed) in ",
        "1 record: 1 legal",
        " steps, as in the record",
        "store has no records yet; tune with log='default', or name a log",
        "the best schedule of the log: equal to NumPy",
        "the best schedule of the store: equal to NumPy",
        "the nearest is operators.py:nearest(256, 64, 32) (same structure, other extents)",
        "INFO: topi.schedule: label takes the record of ",
        " steps, from the record of ",
    ),
    "06_templates": (
        "ConfigSpace of 80:\n   0 tile_i: split of i=64 by factors, 5",
        "ConfigEntity(17: tile_i=[-1, 4], tile_j=[-1, 64], rows=['none'], sum_outside=True)",
        "10 trials, 0 configurations refused before any build",
        "the best schedule: equal to NumPy",
        "the nearest is tutorial/matmul(64, 64, 64) (same name, other sizes)",
        "the same program, declared elsewhere: the same schedule",
        "12 trials (10 resumed) in ",
    ),
    "08_cluster": (
        "measuring for\n",
        "6 trials, 6 measured\n",
        "threads of the device: 1\n",
        "every record names its machine: True\n",
        "the best schedule: equal to NumPy\n",
        "trials of each task: [3, 3]\n",
        "tuned for the workers' target: True\n",
        "configurations of a template measured: 4\n",
        "is another machine, and the connection is not encrypted\n",
    ),
    "09_gpu_matmul": (
        "kernels run on target '",
        "\nan element a thread ",
        "\ntiles in shared memory ",
        "      allocate A.shared: float32[16, 16] in shared\n",
        "\na tile in registers ",
        "\nfetched ahead ",
        "kernel0(",
        "IllegalParallel: s['C'].bind('k_o', 'blockIdx.x')",
        "but C[0, 0] is updated by two of them",
        "s.rfactor('C', 'k_o', factor_axis=0); s['C.rf'].bind('k_o', 'blockIdx.x')",
        "needs 4096 threads in a block (64 x 64 x 1), and cuda -arch=sm_80 allows 1024",
    ),
    "10_tensor_cores": (
        "the kernel runs on target '",
        "c: float32[16, 8] [i < 16, j < 8] = sum(float32(a[i, k]) * float32(b[k, j]); k in [0, 16))",
        ": equal to NumPy, up to the rounding of bfloat16",
        " in shared, swizzled",
        "] in warp\n",
        "machine cuda.mma.m16n8k16.bf16.update(",
        " for A.shared.filled",
        "which lane 4 * (threadIdx.x % 8) + threadIdx.x // 8 of its warp holds, not itself (threadIdx.x)",
    ),
    "11_ship_it": (
        "layer.a layer.h layer.json layer.so layer_test.c",
        "int32_t layer(const float *TL_RESTRICT x, ",
        "ctypes: equal to NumPy",
        "the same bits from a host of our own: True",
        "\nlegal\nloaded: layer is equal, too: True",
        "layer: argument 4 (relu): expected 96 in dimension 1, got 64",
    ),
    "12_torch_and_jax": ("NumPy: right: True",),
    "13_networks": (
        "small_cnn, opset 17: 11 nodes, 5 kernels; not taken: ()",
        "Memory(weights=",
        ": True\nConv               stem ",
        "small_cnn.json has 25 slices",
        "4 trials of 4 kernels\nnot slower than before: True\nstill equal: True",
        "stem        Conv    more than 20 dB: True, exact: True\nwithin a tenth of floats: True\nweights take less",
        "small_cnn.a small_cnn.h small_cnn.json small_cnn.so small_cnn.weights small_cnn_test.c",
        "int32_t small_cnn_run(const float *TL_RESTRICT image, ",
        "loaded: True",
    )
    if find_spec("onnx")
    else ("onnx: not installed",),
    "15_why_is_it_slow": (
        "D: the reduction over k is not split into partial results; s['D'].split('k', factor=16); s.rfactor('D', 'k_i'",
        "warnings that are left: []\n",
        "times as fast: more than 2: True",
    ),
    "16_convolution_to_the_limit": ("\nfilters in vectors ", "\n14 pixels, 1 vectors in registers ", "warnings: []"),
    "17_hand_default_or_tuner": (
        "C product - a product of matrices",
        "a hand beats plain loops: True",
        "6 trials, failures: 0",
        "the best of the log beats plain loops: True",
    ),
    "18_from_tvm": (
        "equal to NumPy; timed: True",
        "IllegalParallel: s['C.global'].parallel('k_o')",
        "module 'tensorlang' has no attribute 'relay': TVM has it, tensorlang does not",
    ),
    "19_a_reduction_of_ones_own": (
        "pair: the reduction over k is not split into partial results; s['pair'].split('k', factor=16); s.rfactor(",
        "legal: s['pair'].vectorize('i')\n         s.rfactor('pair', 'k', factor_axis=0); s['pair.rf'].vectorize('k')",
        "pair: a vector reads A 4096 elements apart (a gather)",
        "warnings that are left: 0\nmore than twice as fast as plain loops: True",
        "associative, up to rounding: True\ncommutative: True\nthe same bits in any grouping: False",
        "rfactor adds up partial results of pair first, another order of its floating-point updates, and the schedule",
        "\ntwo passes, each a reduce_tree ",
        "\na part of each row for each thread ",
        "warnings: []\nthe library beats plain loops: True",
    ),
    "14_four_bits": ("3.19 bits a weight", "form of y: blocks", "within a hundredth of float32: True"),
}
"""What a tutorial must print, besides coming to its end."""

FRESH = ("01_custom_operator", "08_cluster")
"""Those in an interpreter of their own, as users have them; others are forks of a process that has imported much."""

DRAWN = {"04_time_tiling": "time_tiling.svg"}
"""The picture that a tutorial draws, as docs/images shows it."""


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_runs(tutorial: Path, tmp_path: Path, workers: Spawners | None) -> None:
    environment = {**os.environ, "TENSORLANG_CHECK": "0", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    if workers is None or tutorial.stem in FRESH:
        command, environment = [sys.executable, str(tutorial)], {**environment, **FORKING}
        done = subprocess.run(
            command, check=False, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=300
        )
    else:
        done = workers.run(tutorial, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert [text for text in SHOWN.get(tutorial.stem, ()) if text not in done.stdout] == []
    if name := DRAWN.get(tutorial.stem):
        shown = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        assert (tmp_path / name).read_text(encoding="utf-8") == shown


def test_pages_hold_the_cells_of_today() -> None:
    """A page has what its tutorial is, and what it printed when it was written."""
    script = runpy.run_path(str(ROOT / "docs" / "make_tutorials.py"))
    for path in TUTORIALS:
        page = (ROOT / "docs" / "tutorials" / f"{path.stem}.md").read_text(encoding="utf-8")
        cells = script["cells"](path.read_text(encoding="utf-8"))
        code = [text for kind, text in cells if kind == "python"]
        assert re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL) == code, (
            f"run: python docs/make_tutorials.py {path.stem}"
        )
        prose = [line for kind, text in cells if kind == "markdown" for line in text.splitlines() if "](" not in line]
        assert [line for line in prose if line not in page] == []
        assert len(re.findall("^```text$", page, re.MULTILINE)) > 0


def test_every_tutorial_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert TUTORIALS
    assert [path.name for path in TUTORIALS if path.name not in readme] == []
