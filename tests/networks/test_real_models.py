"""Models that others trained, from wheels: the same speech and the same texts are found as with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.networks.onnx.reading import read_model
from tests.networks.models import onnx
from tests.profiles import NIGHTLY

Array = Any
Run = Callable[[dict[str, Array]], Sequence[Array]]
"""Outputs of a model for inputs by name."""
RATE, FRAME, CONTEXT = 16000, 512, 64
STATE = np.zeros((2, 1, 128), np.float32)
SPEECH: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "silero_vad.onnx": ({"input": (1, FRAME + CONTEXT), "state": STATE.shape}, {"sr": RATE}),
    "silero_vad_16k_op15.onnx": ({"input": (1, FRAME + CONTEXT), "state": STATE.shape}, {}),
    "silero_vad_op18_ifless.onnx": ({"input": (1, FRAME + CONTEXT), "state": STATE.shape}, {}),
    "silero_vad_openvino_16k.onnx": ({}, {}),
}
"""Models of silero-vad that take frame after frame, with the shapes of their inputs, and what is known of them."""
IMAGE, LINE, UPRIGHT = (1, 3, 160, 320), (1, 3, 48, 320), (1, 3, 48, 192)
TEXTS = {
    "ch_PP-OCRv4_det_infer.onnx": IMAGE,
    "ch_PP-OCRv4_rec_infer.onnx": LINE,
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": UPRIGHT,
}
"""Models of rapidocr-onnxruntime: where text is, what it says, whether it is upright."""
by_night = pytest.mark.skipif(not NIGHTLY, reason="to compile them takes a minute")


def path_of(name: str) -> Path:
    """A model in a wheel."""
    package, folder = ("silero_vad", "data") if name in SPEECH else ("rapidocr_onnxruntime", "models")
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"no {package.replace('_', '-')}: pip install 'tensorlang[models]'")
    path = Path(found.submodule_search_locations[0]) / folder / name
    if not path.is_file():
        pytest.skip(f"this version of {package} has no {name}")
    return path


def onnxruntime(path: Path, known: dict[str, Any] | None = None) -> Run:
    """A model as onnxruntime runs it."""
    package = pytest.importorskip("onnxruntime")
    package.set_default_logger_severity(3)
    session = package.InferenceSession(path)
    names = {i.name for i in session.get_inputs()}
    fixed = {name: np.array(value) for name, value in (known or {}).items()}

    def run(inputs: dict[str, Array]) -> Sequence[Array]:
        found: list[Array] = session.run(None, {n: v for n, v in (inputs | fixed).items() if n in names})
        return found

    return run


def ours(path: Path, shapes: dict[str, Any], known: dict[str, Any] | None = None) -> Run:
    """A model as tensorlang runs it."""
    model = tensorlang.compile(path, shapes=shapes, known=known)
    return lambda inputs: model.run([inputs[name] for name in model.input_names])


@pytest.mark.parametrize("name", [*SPEECH, *TEXTS])
def test_every_node_is_taken(name: str) -> None:
    shapes, known = SPEECH[name] if name in SPEECH else ({"x": TEXTS[name]}, {})
    assert not read_model(path_of(name), shapes, known).refused


VOWELS = {
    "a": [(730, 90, 1.0), (1090, 110, 0.6), (2440, 150, 0.25)],
    "e": [(530, 80, 1.0), (1840, 110, 0.5), (2480, 150, 0.25)],
    "i": [(270, 60, 1.0), (2290, 120, 0.5), (3010, 160, 0.3)],
    "u": [(300, 60, 1.0), (870, 90, 0.4), (2240, 150, 0.1)],
}
"""Formants: frequency and width in Hz, and how loud."""


def spoken(vowels: str, pitch: float) -> Array:
    """Vowels of 0.16 s that a voice sings, with breath between them. Source: Peterson and Barney, 1952 (formants)."""
    noise, seconds = np.random.default_rng(len(vowels)), 0.16
    t = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * pitch * (t + 0.002 * np.sin(20 * t) - 0.3 * t * t)
    parts = []
    for vowel in vowels:
        harmonics = [
            np.sin(k * phase) * sum(a / (1 + ((k * pitch - f) / w) ** 2) for f, w, a in VOWELS[vowel]) / k**0.5
            for k in range(1, int(6000 / pitch))
        ]
        parts += [sum(harmonics) * np.minimum(1, np.minimum(t, seconds - t) / 0.03), noise.normal(0, 0.1, RATE // 20)]
    return np.concatenate(parts)


@cache
def signal() -> tuple[Array, list[tuple[float, float]]]:
    """A second of silence, speech, silence, another voice, silence; when there is speech, in seconds."""
    quiet = np.zeros(RATE)
    low, high = spoken("aieuai", 120), spoken("uaie", 200)
    whole = np.concatenate([quiet, low, quiet, high, quiet])
    whole = 0.6 * whole / np.abs(whole).max() + np.random.default_rng(0).normal(0, 0.002, len(whole))
    begins = [RATE, 2 * RATE + len(low)]
    times = [(b / RATE, (b + len(v)) / RATE) for b, v in zip(begins, (low, high), strict=True)]
    return whole.astype(np.float32), times


def heard(run: Run) -> Array:
    """How likely there is speech in each frame of the signal; the state goes from one to the next."""
    samples, state, context, found = signal()[0], STATE, np.zeros(CONTEXT, np.float32), []
    for start in range(0, len(samples) - FRAME, FRAME):
        given = np.concatenate([context, samples[start : start + FRAME]])[None]
        speech, state = run({"input": given, "state": state, "sr": np.array(RATE)})
        context = given[0, -CONTEXT:]
        found.append(float(speech[0, 0]))
    return np.array(found)


def segments(likely: Array) -> list[tuple[int, int]]:
    """The frames between which there is speech: it begins above 0.5 and ends below 0.35, as silero-vad has it."""
    found, begin = list[tuple[int, int]](), None
    for number, value in enumerate(likely):
        if begin is None and value >= 0.5:
            begin = number
        elif begin is not None and value < 0.35:
            found.append((begin, number))
            begin = None
    return found


@pytest.mark.parametrize("name", list(SPEECH)[: len(SPEECH) if NIGHTLY else 1])
def test_the_same_speech_is_found(name: str) -> None:
    path, (shapes, known) = path_of(name), SPEECH[name]
    found, wanted = heard(ours(path, shapes, known)), heard(onnxruntime(path, known))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert segments(found) == segments(wanted)
    heard_at = np.array(segments(found)) * FRAME / RATE
    np.testing.assert_allclose(heard_at, signal()[1], atol=0.2)


@by_night
def test_a_rate_that_each_call_tells() -> None:
    """The model has a branch for each rate."""
    name = "silero_vad_op18_ifless.onnx"
    path, rng = path_of(name), np.random.default_rng(1)
    run, wanted = ours(path, SPEECH[name][0]), onnxruntime(path)
    for rate in (8000, RATE, 8000):
        given = {"input": rng.normal(0, 0.3, (1, FRAME + CONTEXT)).astype(np.float32), "state": STATE}
        for got, want in zip(*(model({**given, "sr": np.array(rate)}) for model in (run, wanted)), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)


def image(words: Sequence[str]) -> Any:
    """An image of lines of text, the last one upside down."""
    pillow, drawing = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageDraw")
    font = pytest.importorskip("PIL.ImageFont").load_default(size=30)
    made = pillow.new("RGB", IMAGE[:1:-1], "white")
    for number, word in enumerate(words):
        line = pillow.new("RGB", (IMAGE[3] - 32, 48), "white")
        drawing.Draw(line).text((4, 2), word, fill="black", font=font)
        made.paste(line.rotate(180 * (number == len(words) - 1)), (16, 16 + 70 * number))
    return made


def pixels(picture: Any, shape: tuple[int, ...]) -> Array:
    """A picture as models take it, as high as they want it, and filled up to the right."""
    height, width = shape[2:]
    used = min(width, -(-height * picture.width // picture.height))
    data = np.asarray(picture.resize((used, height))).astype(np.float32) / 127.5 - 1
    made = np.zeros(shape, np.float32)
    made[0, :, :, :used] = data.transpose(2, 0, 1)
    return made


def runs(marked: Array) -> list[tuple[int, int]]:
    """Where runs of marks begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def read_texts(picture: Any, alphabet: Sequence[str], find: Run, read: Run, turned: Run) -> list[str]:
    """The texts of a picture, line by line."""
    (likely,) = find({"x": pixels(picture, IMAGE)})
    marked, texts = likely[0, 0] > 0.3, []
    for top, bottom in runs(marked.any(1)):
        columns, more = np.flatnonzero(marked[top:bottom].any(0)), int(0.4 * (bottom - top))
        line = picture.crop((int(columns[0]) - more, top - more, int(columns[-1]) + more, bottom + more))
        if turned({"x": pixels(line, UPRIGHT)})[0][0, 1] > 0.9:
            line = line.rotate(180)
        best = read({"x": pixels(line, LINE)})[0][0].argmax(1)
        told = [k for number, k in enumerate(best) if k and (number == 0 or best[number - 1] != k)]
        texts.append("".join(alphabet[k] for k in told))
    return texts


@by_night
def test_the_same_texts_are_read() -> None:
    paths, words = [path_of(name) for name in TEXTS], ["Hello tensor 42", "schedules proven"]
    picture = image(words)
    about = {entry.key: entry.value for entry in onnx.load(paths[1]).metadata_props}
    alphabet = ["", *about["character"].split("\n"), " "]
    found = read_texts(picture, alphabet, *(ours(p, {"x": s}) for p, s in zip(paths, TEXTS.values(), strict=True)))
    assert found == read_texts(picture, alphabet, *map(onnxruntime, paths))
    assert [text.replace(" ", "") for text in found] == [word.replace(" ", "") for word in words]
