"""What printing gives: the text of a kernel or of a module, and what its caller has to know."""

from __future__ import annotations

from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BoxMap:
    """A tensor map that a kernel takes: of array number `param`, in boxes that lie swizzled by `span` bytes, or 0."""

    param: int
    dtype: str
    box: tuple[int, ...]
    span: int


@dataclass(frozen=True, slots=True)
class Source:
    """One kernel as C text, complete by itself.

    Its parameters are the arrays in order, then the scalars as 64-bit integers, then tensor maps by value, as
    `maps` says, then, if `uses_fault`, a pointer to an int that is 0: number k + 1 in it after the run means
    `messages[k]`. `shared_bytes` of memory are shared by the threads of a block, scratch of reductions included;
    they are to be asked for at the launch where `dynamic`. `wide_accesses`: pointers have to be multiples of 16
    bytes.
    """

    text: str
    name: str
    messages: tuple[str, ...] = ()
    uses_fault: bool = False
    shared_bytes: int = 0
    dynamic: bool = False
    wide_accesses: bool = False
    maps: tuple[BoxMap, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """Several kernels in one text. The `text` of each of `kernels` is that of the module, `messages` are shared."""

    text: str
    kernels: tuple[Source, ...]
    messages: tuple[str, ...] = ()
