"""tensorlang's own intrinsics, of CPUs and GPUs together: what `te.intrin` knows by name."""

from tensorlang.target.cuda.instructions import TABLE
from tensorlang.target.llvm.instructions import OWN as CPU

OWN = {**CPU, **TABLE}
"""Name -> what declares the intrinsic."""
