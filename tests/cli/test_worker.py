"""`tensorlang worker`, `--runner` and `--flush`: what they refuse, and what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorlang.cli.main import main

REFUSED = [
    (["worker", "localhost:8786"], "write dask://host:port"),
    (["worker", "dask://192.0.2.7:8786"], "not encrypted"),
    (
        ["worker", "dask://localhost:8786", "--tls-cert", "x"],
        "give tls_ca_file and tls_key as well (--tls-ca-file, --tls-key)",
    ),
    (["worker", "dask://localhost:8786/a", "--device", "b"], "names another device than --device b"),
    (["worker", "dask://localhost:8786", "--threads", "0"], "--threads"),
    (["tune", "matmul", "--shape", "8,8,8", "--runner", "ssh://there"], "runner is 'local', 'dask://host:port' or"),
    (["tune", "matmul", "--shape", "8,8,8", "--runner", "dask://192.0.2.7:1"], "not encrypted"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_mistakes_end_with_a_line_and_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    error = capsys.readouterr().err
    assert (ended.value.code, said in error, error.count("\n")) == (2, True, 1), error


def test_tune_writes_conditions_of_a_flushed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    arguments = ["tune", "matmul", "--shape", "8,16,8", "--threads", "1", "--trials", "2", "--flush", "--json"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--log", str(log)])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2
    records = [json.loads(line) for line in log.read_text().split("\n") if line]
    assert [r["conditions"]["flush"] for r in records] == [True, True]
