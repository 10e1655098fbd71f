"""What `tensorlang log import` reads, and what it says of every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorlang.dataclass import dataclass

if TYPE_CHECKING:
    from tensorlang.autotune import Log
    from tensorlang.autotune.importers.importing import Imported
    from tensorlang.autotune.importers.programs import Source


_SHOWN = 3  # reasons in a message


@dataclass(frozen=True, slots=True)
class Options:
    """How TVM's logs are read."""

    programs: Sequence[str]
    target: str | None
    verify: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The records of a file, and what is said of it: as lines, and as JSON. `tuner`: that of another project."""

    log: Log
    tuner: str = ""
    texts: tuple[str, ...] = ()
    entries: tuple[dict[str, Any], ...] = ()


def read_files(files: Sequence[str], form: str | None, options: Options) -> list[Part]:
    """Read all files, or raise RecordError: then nothing is written."""
    from tensorlang.autotune.importers import formats as foreign
    from tensorlang.autotune.importers.importing import import_log
    from tensorlang.autotune.importers.programs import sources_from
    from tensorlang.autotune.records.formats import find_format

    sources: Mapping[str, Source] = sources_from(options.programs)
    parts = []
    for file in files:
        found = find_format(file, form)
        if found.name in foreign.NAMES:
            parts.append(_of_tvm(import_log(file, sources, options.target), options.verify))
        else:
            parts.append(Part(found.read(Path(file))))
    return parts


def outputs(parts: Sequence[Part], output: str) -> dict[Path, list[Part]]:
    """The logs to append to, and what goes there: into the default store, what other tuners measured lies apart."""
    from tensorlang.autotune.records.store import DEFAULT, imported_path, log_path

    found: dict[Path, list[Part]] = {}
    for part in parts:
        path = imported_path(part.tuner) if part.tuner and output == DEFAULT else log_path(output)
        found.setdefault(path, []).append(part)
    return found


def _of_tvm(imported: Imported, verify: bool) -> Part:
    """Refused lines one by one, then how many became records, and what running them showed."""
    from tensorlang.errors import RecordError

    endings: Counter[str] = Counter()
    if verify:
        imported, endings = _verified(imported)
    if not imported.lines:
        raise RecordError(f"nothing of {imported.path} can be imported: {_reasons(imported)}")
    texts = [f"{imported.path}:{r.line}: refused: {_indented(r.reason)}" for r in imported.refused]
    entries = [{"file": str(imported.path), "line": r.line, "refused": r.reason} for r in imported.refused]
    counted = f"{len(imported.lines)} of {len(imported.lines) + len(imported.refused)} lines became records"
    texts.append(f"{imported.path}: {counted}{_elsewhere(imported)}")
    if verify:
        texts.append(f"{imported.path}: run here: {', '.join(f'{n} {what}' for what, n in sorted(endings.items()))}")
    summary = {"file": str(imported.path), "imported": len(imported.lines), "refused": len(imported.refused)}
    entries.append(summary | ({"verified": dict(endings)} if verify else {}))
    return Part(replace(imported.log, foreign=0, reason=""), "tvm", tuple(texts), tuple(entries))


def _reasons(imported: Imported) -> str:
    """Why lines were refused, the commonest reasons first."""
    counts = Counter(r.reason.partition("\n")[0] for r in imported.refused).most_common(_SHOWN)
    return "; ".join(f"{count} line{'s' * (count > 1)}: {reason}" for reason, count in counts) or "it is empty"


def _indented(reason: str) -> str:
    return reason.replace("\n", "\n    ")


def _elsewhere(imported: Imported) -> str:
    """How many records are for machines that tensorlang does not compile for."""
    from tensorlang.target.kinds import capabilities

    named = (str(r.target["kind"]) for r in imported.records)
    kinds = Counter(kind for kind in named if not capabilities(kind).native)
    many = [f"{count} for {kind}, which cannot run here" for kind, count in kinds.items()]
    return "".join(f"; {text}" for text in many)


def _verified(imported: Imported) -> tuple[Imported, Counter[str]]:
    """Leave out what did not give the reference's outputs, and count how the runs ended."""
    from tensorlang.autotune.importers.importing import Refusal
    from tensorlang.autotune.importers.verifying import Ending, verify

    found = list(verify(imported))
    failed = [Refusal(v.imported.line, f"run here, it failed: {v.why}") for v in found if v.ending is Ending.FAILED]
    kept = tuple(v.imported for v in found if v.ending is not Ending.FAILED)
    refused = tuple(sorted((*imported.refused, *failed), key=lambda r: r.line))
    return replace(imported, lines=kept, refused=refused), Counter(v.ending.value for v in found)
