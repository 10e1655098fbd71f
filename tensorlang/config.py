"""Settings: one table of the TENSORLANG_* environment variables, read when they are used.

`config.get("cache_dir")` answers from `override` blocks first, then from the environment, then from the
table. Values are typed by the table; a bad value raises SettingError and names the variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

from tensorlang.dataclass import dataclass
from tensorlang.errors import TensorlangError

_PREFIX = "TENSORLANG_"


class SettingError(TensorlangError, ValueError):
    """An environment setting has a value that its table row does not allow, or an unknown name was asked for."""


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _optional_count(text: str) -> int | None:
    return _count(text) if text.strip() else None


def _folder(text: str) -> Path:
    if not text.strip():
        raise ValueError
    return Path(text).expanduser()


def _optional_folder(text: str) -> Path | None:
    return _folder(text) if text.strip() else None


_TOPICS = ("passes", "cache", "tuner", "networks")


def _topics(text: str) -> frozenset[str]:
    words = frozenset(w.strip() for w in text.split(",") if w.strip())
    if not words <= set(_TOPICS):
        raise ValueError
    return words


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the name after TENSORLANG_, its default as text, its parser, what it takes, what it does."""

    name: str
    default: str
    parse: Callable[[str], Any]
    takes: str
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable."""
        return _PREFIX + self.name.upper()


SETTINGS: MappingProxyType[str, Setting] = MappingProxyType(
    {
        s.name: s
        for s in (
            Setting(
                "num_threads",
                "",
                _optional_count,
                "a whole number >= 1",
                "threads of a parallel loop; without it as many as usable CPUs, at most OMP_NUM_THREADS",
            ),
            Setting("cache", "1", _switch, "0 or 1", "keep compiled kernels on disk"),
            Setting("cache_dir", "~/.cache/tensorlang", _folder, "a folder", "where compiled kernels are kept"),
            Setting(
                "store", "~/.local/share/tensorlang", _folder, "a folder", "where tuning records are kept by default"
            ),
            Setting("dump", "", _optional_folder, "a folder", "write every stage of lowering there, numbered"),
            Setting("log", "", _topics, f"some of {', '.join(_TOPICS)}", "print what these parts do"),
            Setting("check", "0", _switch, "0 or 1", "verify the loop IR after every pass"),
            Setting("budget", "20000000", _count, "a whole number >= 1", "isl operations allowed to one analysis"),
            Setting("statements", "100000", _count, "a whole number >= 1", "statements of a kernel, unrolled ones too"),
            Setting(
                "scratch",
                "",
                _optional_count,
                "a whole number >= 1",
                "bytes that an array inside a kernel may take; without it what the machine has",
            ),
            Setting(
                "record_seconds",
                "30",
                _count,
                "a whole number >= 1",
                "processor seconds that proving and building one record of a log may take",
            ),
        )
    }
)

_overrides: ContextVar[MappingProxyType[str, Any]] = ContextVar("overrides", default=MappingProxyType({}))


@overload
def get(name: Literal["cache", "check"]) -> bool: ...
@overload
def get(name: Literal["num_threads", "scratch"]) -> int | None: ...
@overload
def get(name: Literal["budget", "statements", "record_seconds"]) -> int: ...
@overload
def get(name: Literal["cache_dir", "store"]) -> Path: ...
@overload
def get(name: Literal["dump"]) -> Path | None: ...
@overload
def get(name: Literal["log"]) -> frozenset[str]: ...
def get(name: str) -> Any:
    """Return the value of a setting now; SettingError on a bad value."""
    setting = _row(name)
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    return _parse(setting, os.environ.get(setting.variable, setting.default))


@contextmanager
def override(**values: str | int | bool | Path) -> Iterator[None]:
    """Give settings other values inside a `with` block; texts are parsed as the environment's are."""
    with overriding({name: _parse(_row(name), _text(value)) for name, value in values.items()}):
        yield


def overrides() -> dict[str, Any]:
    """The values that settings were given by the blocks around, for `overriding` in another thread or process."""
    return dict(_overrides.get())


@contextmanager
def overriding(values: Mapping[str, Any]) -> Iterator[None]:
    """Give settings values that `overrides` had."""
    token = _overrides.set(MappingProxyType({**_overrides.get(), **values}))
    try:
        yield
    finally:
        _overrides.reset(token)


def _row(name: str) -> Setting:
    if name not in SETTINGS:
        raise SettingError(f"unknown setting {name!r}; known: {', '.join(SETTINGS)}")
    return SETTINGS[name]


def _text(value: str | int | bool | Path) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _parse(setting: Setting, text: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError:
        raise SettingError(f"{setting.variable}={text!r}: expected {setting.takes} ({setting.meaning})") from None
