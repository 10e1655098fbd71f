"""Programs and schedules in files of users: `path/to/file.py:function`."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tensorlang.errors import DefinitionError, TensorlangError
from tensorlang.files import is_file


def load_function(name: str) -> Callable[..., Any]:
    """Return the function of `path/to/file.py:function`; DefinitionError when there is none.

    A function of arrays (`@tensorlang.kernel`) is called with shapes, as its `tensors` takes them. What it raises,
    other than errors of tensorlang, becomes a DefinitionError that shows the call. The function itself is its
    `__wrapped__`.
    """
    path, _, function = name.rpartition(":")
    if not path or not function:
        raise DefinitionError(f"{name!r} names no function; write path/to/file.py:function")
    module = load_file(Path(path))
    made = getattr(module, function, None)
    if not callable(made):
        known = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise DefinitionError(f"{path} has no function {function!r}; it has: {', '.join(known) or 'none'}")

    of_shapes = getattr(made, "tensors", made)

    @functools.wraps(made)
    def call(*args: Any) -> Any:
        try:
            return of_shapes(*args)
        except TensorlangError:
            raise
        except Exception as error:
            text = f"{name}({', '.join(map(repr, args))}) failed: {type(error).__name__}: {error}"
            raise DefinitionError(text) from error

    return call


def load_file(path: Path) -> ModuleType:
    """Import a Python file, which finds the modules beside it, as a script does; DefinitionError when that fails."""
    if not is_file(path):
        raise DefinitionError(f"no such file: {path}")
    name = f"tensorlang_operator_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)  # behind all others: none of theirs is hidden
    try:
        spec.loader.exec_module(module)
    except TensorlangError:
        raise
    except Exception as error:
        raise DefinitionError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
