"""What every test runs under: checks on, a cache of its own, fixed hypothesis profiles, golden files."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tensorlang.runtime import openmp
from tests import thoroughness
from tests.profiles import PROFILE

if TYPE_CHECKING:
    from tests.forked_workers import Spawners
    from tests.target.cuda.emulated import EmulatedCupy

_TESTS = Path(__file__).parent
_PACKAGES = ("tensorlang", "examples", "benchmarks")
_ELSEWHERE = re.compile(r".*\.__main__|benchmarks\.peers\..*")  # scripts; those of peers run beside other libraries
_OF_MACHINE_CODE = ("target/llvm", "export", "test_llvm_builds.py")
_OF_NETWORKS = ("networks", "frameworks")
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "default", deadline=None, max_examples=20, derandomize=True, database=None, suppress_health_check=_SLOW
)
settings.register_profile("nightly", deadline=None, max_examples=2000, database=None, suppress_health_check=_SLOW)
settings.load_profile(PROFILE)
thoroughness.each_draw_anew()

pytest_collection_modifyitems = thoroughness.by_day

Golden = Callable[..., None]
_RUN = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden and --emulated-cuda."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")
    parser.addoption("--emulated-cuda", action="store_true", help="run the tests of CUDA devices on an emulated one")


def pytest_configure(config: pytest.Config) -> None:
    """Name a folder that the processes of a run share, and the markers; let all of them keep what Python compiles."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of hundreds compiles this package anew
    sys.dont_write_bytecode = False
    config.addinivalue_line("markers", "cuda_device: runs on a CUDA device, and is skipped where there is none")
    config.addinivalue_line("markers", "not_for_nvrtc(reason): makes CUDA texts that are wrong on purpose")
    config.addinivalue_line(
        "markers", "covering(strength): by day, cases in which all combinations of so many values are"
    )
    config.addinivalue_line("markers", "sampled(few): by day, so many of the cases, as different as may be")
    if not hasattr(config, "workerinput"):
        config.stash[_RUN] = tempfile.TemporaryDirectory(prefix="tensorlang-tests-")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist the folder."""
    node.workerinput["run"] = node.config.stash[_RUN].name


def _folder_of_run(config: pytest.Config) -> Path:
    return Path(config.workerinput["run"] if hasattr(config, "workerinput") else config.stash[_RUN].name)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder."""
    if (folder := config.stash.get(_RUN, None)) is not None:
        folder.cleanup()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import every module of ours, whatever the tests of this process are, and watch what they make for GPUs.

    hypothesis draws constants that it finds in the source of imported modules: with fewer modules, or others, the same
    test has other examples.
    """
    openmp.available()  # before a package loads it with idle threads that spin
    config = session.config
    runs_no_test = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    for name in () if runs_no_test else _PACKAGES:
        for found in walk_packages([str(_TESTS.parent / name)], f"{name}."):
            if not _ELSEWHERE.fullmatch(found.name):
                with suppress(Exception):  # what cannot be imported here fails the tests that need it
                    import_module(found.name)
    from tests.cuda_kernels import CudaKernels, watch
    from tests.target.cuda import emulated

    kernels = CudaKernels(_folder_of_run(config) / "cuda_kernels")
    watch(kernels)
    config.pluginmanager.register(kernels)
    if config.getoption("--emulated-cuda"):
        emulated.install(pytest.MonkeyPatch(), emulated.EmulatedCupy())


def pytest_collection_finish() -> None:
    """Collections of garbage need not look at modules and tests each time: those stay."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def garbage() -> Iterator[None]:
    """What a file of tests leaves behind, as caches, stays: collections need not look at it each time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test imported from files that it wrote: they are no source of constants for others."""
    before = len(sys.modules)
    yield
    for name in list(islice(reversed(sys.modules), max(0, len(sys.modules) - before))):  # the newest
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Verify every stage of lowering, keep compiled kernels and records in folders of this run, and build quickly."""
    from tests.opencl_builds import build_quickly

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORLANG_CHECK", "1")
        patch.setenv("TENSORLANG_CACHE_DIR", str(_folder_of_run(request.config) / "cache"))
        patch.setenv("TENSORLANG_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        for name in ("TENSORLANG_DUMP", "TENSORLANG_LOG", "TENSORLANG_BUDGET", "TENSORLANG_CACHE"):
            patch.delenv(name, raising=False)
        build_quickly(patch)
        yield


@pytest.fixture(scope="module", autouse=True)
def quick_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out the optimisations of LLVM, mostly, but where its code is what tests are about; build layers once."""
    from tests.llvm_builds import build_quickly
    from tests.network_builds import build_once

    with pytest.MonkeyPatch.context() as patch:
        if not _is_in(request.path, _OF_MACHINE_CODE):
            build_quickly(patch.setattr)
        if _is_in(request.path, _OF_NETWORKS):
            build_once(patch)
        yield


def _is_in(path: Path, places: Iterable[str]) -> bool:
    return any(path.is_relative_to(_TESTS / place) for place in places)


@pytest.fixture(scope="session", autouse=True)
def workers(environment: None) -> Iterator[Spawners | None]:
    """Fork the workers of tuners from one process, which forks scripts, too; None where processes are not forked."""
    from tests.forked_workers import forked

    with forked() if sys.platform == "linux" else nullcontext() as spawners:
        yield spawners


@pytest.fixture
def emulated_cuda(monkeypatch: pytest.MonkeyPatch) -> EmulatedCupy:
    """A CUDA device in place of this machine's, with one Hopper that runs CUDA texts on the CPU."""
    from tests.target.cuda import emulated

    if why := emulated.why_not():
        pytest.skip(why)
    return emulated.install(monkeypatch, emulated.EmulatedCupy())


@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.cuda_device), "emulated"])
def any_cuda(request: pytest.FixtureRequest) -> Any:
    """CuPy, with this machine's GPU and with the emulated one."""
    from tensorlang.target.cuda import runtime
    from tests.device_targets import why_no_cuda

    if request.param == "emulated":
        return request.getfixturevalue("emulated_cuda")
    if why := why_no_cuda():
        pytest.skip(why)
    return runtime.cupy()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(text)` compares with tests/golden/<path>/<test>.txt; `name=` tells several of one test apart."""
    module = request.path.relative_to(_TESTS).with_suffix("")
    folder = _TESTS / "golden" / module.parent / module.name.removeprefix("test_")

    def check(text: str, name: str = "") -> None:
        stem = request.node.name.removeprefix("test_") + (f"-{name}" if name else "")
        path = folder / f"{re.sub(r'[^0-9A-Za-z_.-]+', '-', stem).strip('-')}.txt"
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(
                f"no golden file {path.relative_to(_TESTS)}; run with --update-golden and read it. Got:\n{text}"
            )
        assert text == path.read_text(encoding="utf-8"), f"differs from {path.relative_to(_TESTS)}"

    return check
