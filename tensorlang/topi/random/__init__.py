"""Random numbers from a state that is data (Threefry): the same ones on every machine, in any order."""

from tensorlang.topi.random.distributions import multinomial, normal, uniform
from tensorlang.topi.random.threefry import threefry_generate, threefry_key, threefry_split

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_key", "threefry_split", "uniform"]
