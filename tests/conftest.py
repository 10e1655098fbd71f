"""What every test runs under: checks on, a cache of its own, fixed hypothesis profiles, golden files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import HealthCheck, settings

from tensorlang.runtime import openmp

_TESTS = Path(__file__).parent
_PACKAGES = ("tensorlang", "examples", "benchmarks")
_ELSEWHERE = re.compile(r".*\.__main__|benchmarks\.peers\..*")  # scripts; those of peers run beside other libraries
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("default", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW)
settings.register_profile("nightly", deadline=None, max_examples=2000, database=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

Golden = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")


def pytest_sessionstart() -> None:
    """Import every module of ours, whatever the tests of this process are.

    hypothesis draws constants that it finds in the source of imported modules: with fewer modules, or others, the same
    test has other examples.
    """
    openmp.available()  # before a package loads it with idle threads that spin
    for name in _PACKAGES:
        for found in walk_packages([str(_TESTS.parent / name)], f"{name}."):
            if not _ELSEWHERE.fullmatch(found.name):
                with suppress(Exception):  # what cannot be imported here fails the tests that need it
                    import_module(found.name)


@pytest.fixture(autouse=True)
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules that a test imported from files that it wrote: they are no source of constants for others."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Verify every stage of lowering, and keep compiled kernels and records in folders of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORLANG_CHECK", "1")
        patch.setenv("TENSORLANG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TENSORLANG_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        for name in ("TENSORLANG_DUMP", "TENSORLANG_LOG", "TENSORLANG_BUDGET", "TENSORLANG_CACHE"):
            patch.delenv(name, raising=False)
        yield


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
