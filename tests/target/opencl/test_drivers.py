"""The driver of the wheel is found by a fresh process, without root and without the system's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tensorlang.target.opencl import drivers

LIST = """
import os
from tensorlang.target.opencl.runtime import devices
print(*{device.platform for device in devices()}, sep="|")
assert os.environ.get("OCL_ICD_VENDORS") == given, os.environ["OCL_ICD_VENDORS"]
"""


def platforms(**environment: str) -> set[str]:
    """The platforms that a new process sees."""
    given = f"given = {environment.get('OCL_ICD_VENDORS')!r}\n"
    variables = {k: v for k, v in os.environ.items() if k not in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")}
    command = [sys.executable, "-c", given + LIST]
    done = subprocess.run(command, env=variables | environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(filter(None, done.stdout.strip().split("|")))


@pytest.fixture
def wheel() -> Path:
    """The library of the CPU runtime."""
    for name in ("pyopencl", "intel-opencl-rt", "intel-cmplr-lib-rt"):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
    found = drivers._file("intel-opencl-rt", "libintelocl.so")
    assert found is not None
    return found


@pytest.mark.usefixtures("wheel")
def test_the_wheel_is_found_beside_the_system_s_drivers() -> None:
    alone = platforms(OPENCL_VENDOR_PATH="/nonexistent")
    assert alone == {"Intel(R) OpenCL"}
    assert platforms() >= alone


def test_the_user_s_choice_of_drivers_stands(tmp_path: Path, wheel: Path) -> None:
    assert platforms(OCL_ICD_VENDORS=str(tmp_path)) == set()
    (tmp_path / "mine.icd").write_text(str(wheel), encoding="utf-8")
    assert platforms(OCL_ICD_VENDORS=str(tmp_path)) == {"Intel(R) OpenCL"}


def test_registered_runtimes_are_not_added_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setenv("OPENCL_VENDOR_PATH", str(tmp_path))
    monkeypatch.setattr(drivers, "_file", lambda distribution, name: Path("/opt/wheel") / name)
    monkeypatch.setattr(drivers, "_preload", lambda: True)
    (tmp_path / "other.icd").write_text("libother.so\n", encoding="utf-8")
    with drivers.wheel_drivers():
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        names = {file.read_text(encoding="utf-8").strip() for file in folder.iterdir()}
        assert names == {"libother.so", "/opt/wheel/libintelocl.so"}
    assert "OCL_ICD_VENDORS" not in os.environ and not folder.exists()
    (tmp_path / "intel.icd").write_text("/usr/lib/libintelocl.so\n", encoding="utf-8")
    with drivers.wheel_drivers():
        assert "OCL_ICD_VENDORS" not in os.environ


def test_a_machine_without_the_wheel_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setattr(drivers, "_RUNTIME", ("no-such-wheel", "libintelocl.so"))
    with drivers.wheel_drivers():
        assert "OCL_ICD_VENDORS" not in os.environ
