"""Settings: defaults, the environment, overrides, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang import config


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in config.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    assert config.get("cache") is True
    assert config.get("check") is False
    assert config.get("num_threads") is None
    assert config.get("dump") is None
    assert config.get("log") == frozenset()
    assert config.get("cache_dir") == Path("~/.cache/tensorlang").expanduser()
    assert config.get("budget") > 0


def test_the_environment_is_read_at_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_NUM_THREADS", "3")
    assert config.get("num_threads") == 3
    monkeypatch.setenv("TENSORLANG_NUM_THREADS", "5")
    assert config.get("num_threads") == 5
    monkeypatch.setenv("TENSORLANG_LOG", "passes, cache")
    assert config.get("log") == {"passes", "cache"}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TENSORLANG_NUM_THREADS", "0", "TENSORLANG_NUM_THREADS='0': expected a whole number >= 1"),
        ("TENSORLANG_CACHE", "maybe", "TENSORLANG_CACHE='maybe': expected 0 or 1"),
        ("TENSORLANG_LOG", "everything", "expected some of passes"),
        ("TENSORLANG_BUDGET", "1e6", "TENSORLANG_BUDGET='1e6'"),
        ("TENSORLANG_CACHE_DIR", " ", "expected a folder"),
    ],
)
def test_bad_values(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(config.SettingError, match=message):
        config.get(variable.removeprefix("TENSORLANG_").lower())  # type: ignore[call-overload]


def test_overrides_nest_and_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CHECK", "1")
    with config.override(check=False, num_threads=2, dump=tmp_path):
        assert config.get("check") is False
        assert config.get("dump") == tmp_path
        with config.override(num_threads=4):
            assert config.get("num_threads") == 4
            assert config.get("check") is False
        assert config.get("num_threads") == 2
    assert config.get("check") is True


def test_unknown_and_bad_overrides() -> None:
    with (
        pytest.raises(config.SettingError, match="unknown setting 'threads'; known: num_threads"),
        config.override(threads=2),
    ):
        pass
    with pytest.raises(config.SettingError, match="TENSORLANG_BUDGET='-1'"), config.override(budget=-1):
        pass
