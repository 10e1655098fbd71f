"""Addresses: how they are written, and which may be talked to without encryption."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang.autotune import machines_of
from tensorlang.autotune.cluster.address import (
    Address,
    ConnectionRefused,
    Tls,
    named,
    parse_address,
    require_private,
    tls_of,
)
from tensorlang.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dask://localhost:8786", Address("localhost", 8786)),
        ("dask://10.0.0.3:1/epyc", Address("10.0.0.3", 1, "epyc")),
        ("dask://[::1]:8786/my-board_2.0", Address("::1", 8786, "my-board_2.0")),
    ],
)
def test_an_address_reads_and_prints(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text
    assert address.resources.keys() == {"device", *([address.device] if address.device else [])}


@pytest.mark.parametrize(
    "text", ["localhost:8786", "dask://localhost", "dask://a:0", "dask://a:70000", "dask://a:1/b c"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="write dask://host:port"):
        parse_address(text)


def test_a_runner_is_local_or_a_cluster() -> None:
    for wrong in ("ssh://somewhere", 3, None):
        with pytest.raises(DefinitionError, match=f"'local', 'dask://host:port' or an open cluster, got {wrong!r}"):
            machines_of(wrong)  # type: ignore[arg-type]


def test_plain_connections_stay_on_this_machine() -> None:
    require_private(parse_address("dask://localhost:8786"), None)
    require_private(parse_address("dask://[::1]:8786"), None)
    with pytest.raises(ConnectionRefused, match=r"not encrypted.*--tls-ca-file"):
        require_private(parse_address("dask://192.0.2.7:8786"), None)
    with pytest.raises(ConnectionRefused, match="no such host"):
        require_private(parse_address("dask://nowhere.invalid:8786"), None)


def test_tls_needs_all_three_files(tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    file.touch()
    name = str(file)
    assert tls_of(None, None, None) is None
    tls = tls_of(name, name, name)
    assert tls == Tls(name, name, name)
    require_private(parse_address("dask://192.0.2.7:8786"), tls)
    assert parse_address("dask://192.0.2.7:8786").url(tls) == "tls://192.0.2.7:8786"
    with pytest.raises(DefinitionError, match=r"give tls_cert and tls_key as well \(--tls-cert, --tls-key\)"):
        tls_of(name, None, None)
    with pytest.raises(DefinitionError, match=r"no such file for TLS: .*absent"):
        tls_of(name, name, str(tmp_path / "absent"))


def test_a_device_gets_a_name() -> None:
    plain = parse_address("dask://localhost:1")
    assert named(plain, None) == plain
    assert named(plain, "board").device == "board"
    assert named(named(plain, "board"), "board").device == "board"
    for wrong in ("device", "two words", ""):
        with pytest.raises(DefinitionError, match="named by letters"):
            named(plain, wrong)
    with pytest.raises(DefinitionError, match="another device"):
        named(named(plain, "board"), "other")
