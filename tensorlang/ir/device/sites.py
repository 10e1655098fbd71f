"""The statements of a kernel by number, as messages show them."""

from __future__ import annotations

from dataclasses import field
from typing import NoReturn

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import Stmt


@dataclass(slots=True)
class Sites:
    """The statements of a kernel, numbered; a message shows them."""

    kernel: str
    stmts: list[Stmt] = field(default_factory=list)

    def add(self, stmt: Stmt) -> int:
        """The number of a statement."""
        self.stmts.append(stmt)
        return len(self.stmts) - 1

    def text(self, site: int) -> str:
        """The first line of a statement."""
        return stmt_text(self.stmts[site]).partition("\n")[0]

    def fault(self, message: str, *sites: int) -> NoReturn:
        """Raise InternalError, with statements printed below."""
        shown = [f"\n    {self.text(site)}" for site in dict.fromkeys(sites)]
        raise InternalError(f"kernel {self.kernel}: {message}{''.join(shown)}")
