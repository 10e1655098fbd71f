"""The backend tests of the onnx package, one after the other: passed, not taken (with reasons), or failed."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.errors import DefinitionError, TensorlangError
from tensorlang.networks.refusal import UnsupportedModel

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
PASSED, REFUSED, FAILED = "passed", "not taken", "failed"
_HALF = 2.0**-8
"""Four steps of float16: sums and functions are rounded in another order than by the reference."""


_NOISE = 2.0**-24
"""Half a step of float32 at the largest value: what is wanted of transforms is off by that itself."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of a test; `why`, of those that did not pass: operators with reasons, or what is wrong."""

    kind: str
    name: str
    state: str
    why: tuple[str, ...] = ()


def cases(kinds: Sequence[str] = KINDS) -> Iterator[Any]:
    """The tests of the onnx package, kind by kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        for kind in kinds:
            yield from load_model_tests(kind=kind)


def ending(case: Any) -> Ending:
    """Run a test by `tensorlang.networks.onnx.backend`."""
    from tensorlang.networks.onnx import backend

    model, data = _read(case)
    try:
        prepared = backend.prepare(model)
        for inputs, wanted in data:
            _compare(prepared.run(inputs), wanted, case)
    except UnsupportedModel as error:
        whys = tuple(dict.fromkeys(f"{refusal.op}: {refusal.why}" for refusal in error.refusals))
        return Ending(case.kind, case.name, REFUSED, whys)
    except DefinitionError as error:
        return Ending(case.kind, case.name, REFUSED, (error.message,))
    except (AssertionError, TensorlangError) as error:
        return Ending(case.kind, case.name, FAILED, (f"{type(error).__name__}: {error}",))
    except Exception as error:  # raw errors are what such tests look for
        return Ending(case.kind, case.name, FAILED, (f"raw {type(error).__name__}: {error}",))
    return Ending(case.kind, case.name, PASSED)


def reason(why: str) -> str:
    """A reason without numbers and names, so that those that are alike count together."""
    short = re.split(r"[;,(]| of \d", why)[0]
    return re.sub(r"\d+", "n", short).strip()


def _compare(made: Sequence[Any], wanted: Sequence[Any], case: Any) -> None:
    from onnx.backend.test.runner import Runner

    half = any(str(getattr(want, "dtype", "")) == "float16" for want in wanted)
    noise = _NOISE * max(float(np.abs(want).max(initial=0)) for want in wanted) if "dft" in case.name else 0.0
    Runner.assert_similar_outputs(wanted, made, max(case.rtol, _HALF * half), max(case.atol, noise), case.name)


def _read(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """The model of a test, and inputs with what they give."""
    import onnx

    if case.data_sets is not None:
        return case.model, [([*map(_array, given)], [*map(_array, wanted)]) for given, wanted in case.data_sets]
    if case.model_dir is None:
        return _light(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    found = []
    for data in sorted(folder.glob("test_data_set*")):
        given = [_stored(data / f"input_{k}.pb", i) for k, i in enumerate(model.graph.input)]
        wanted = [_stored(data / f"output_{k}.pb", o) for k, o in enumerate(model.graph.output)]
        found.append(([value for value in given if value is not None], wanted))
    return model, found


def _light(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """A light network of the package, which has inputs of its own, and an output in a file."""
    import onnx
    from onnx.backend.test.runner import Runner

    path = Path(onnx.__file__).parent.parent / case.url
    model = onnx.load(path)
    held = {tensor.name for tensor in model.graph.initializer}
    given = [Runner.generate_dummy_data(info) for info in model.graph.input if info.name not in held]
    return model, [(given, [_stored(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0])])]


def _stored(file: Path, info: Any) -> Any:
    """A tensor or a sequence in a file; None without the file, as for initial values."""
    import onnx

    if not file.exists():
        return None
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    made = kinds.get(info.type.WhichOneof("value"), onnx.TensorProto)()
    made.ParseFromString(file.read_bytes())
    return _array(made)


def _array(value: Any) -> Any:
    """Data of a test as an array; sequences are lists."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value if isinstance(value, list | np.ndarray) or hasattr(value, "SerializeToString") else np.asarray(value)
