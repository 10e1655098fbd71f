"""Arrays of blocks and threads have names of their own."""

from __future__ import annotations

from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.stmt import Allocate, Seq
from tensorlang.lowering.device.arrays import used
from tensorlang.lowering.device.private import own_arrays

(i,) = indices("i")
A, B = array("A", (32,)), array("B", (32,))
T, OTHER = array("T", (32,), scope="shared"), array("T_1", (32,))


def test_a_shared_array_that_is_there_twice_takes_the_name_of_no_other_array() -> None:
    """The second one was named as an array of the program is, and threads read the wrong one."""
    first = Allocate(T, Seq((loop(i, 0, 32, store(T, i, load(A, i))), loop(i, 0, 32, store(B, i, load(T, i))))))
    again = Seq((loop(i, 0, 32, store(T, i, load(OTHER, i))), loop(i, 0, 32, store(B, i, load(T, 31 - i)))))
    placed = own_arrays(Seq((first, Allocate(T, again))), {}, "rows")
    assert [buffer.name for buffer in placed.shared] == ["T", "T_2"]
    assert used(placed.body) == {"A", "B", "T", "T_1", "T_2"}
