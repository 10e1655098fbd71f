"""From records of older schemas to today's: one function a step, in a table.

A record that was written once must stay readable; nothing here may ask for more than its own schema had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang.errors import RecordError
from tensorlang.te.forms import form_of, text_key

Json = dict[str, Any]

SCHEMA = 3


def _from_1(data: Json) -> Json:
    """Schema 2 has the program's text and sizes, the verdict, and how the candidate was timed.

    The text is not known any more, the key is. Tuners of schema 1 took programs of constant sizes only, and proved
    what they measured: the verdict is what the status says.
    """
    workload = {**data["workload"], "program": "", "sizes": {}}
    return {**data, "workload": workload, "verdict": None, "conditions": {}}


def _from_2(data: Json) -> Json:
    """The key of schema 3 is that of the program's form, whatever its names; before, it was that of the text.

    Where there is no text (schema 1), or it does not have the key, the key stays.
    """
    workload = data["workload"]
    text = workload["program"]
    known = isinstance(text, str) and text and text_key(text) == workload["key"]
    return {**data, "workload": {**workload, "key": form_of(text).key}} if known else data


UPGRADES: dict[int, Callable[[Json], Json]] = {1: _from_1, 2: _from_2}


def upgraded(record: Any) -> Json:
    """Return a record's JSON data in today's schema; RecordError when it has none, or one that is not known here."""
    if not isinstance(record, dict) or "schema" not in record:
        raise RecordError("not a tuning record: no field 'schema'")
    data: Json = record
    schema: Any = data["schema"]
    while schema in UPGRADES:
        data = {**UPGRADES[schema](data), "schema": schema + 1}
        schema += 1
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "update tensorlang to read it" if newer else "is it of another program?"
        raise RecordError(
            f"record of schema {schema!r}; this version reads schemas {min(UPGRADES)} to {SCHEMA}: {advice}"
        )
    return data
