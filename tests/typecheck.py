"""The type checker that the tests put on every function of the library."""

import random
from unittest.mock import patch

# It draws at random which item of a list it looks at. Drawn from a generator of its own, and not
# from everyone's, that changes nothing that a test may see.
with patch.object(random, "getrandbits", random.Random(0).getrandbits):
    from beartype import BeartypeConf, beartype

    @beartype
    def _loads_the_rest(items: list[int]) -> None: ...


# An integer will do where a float is wanted.
typecheck = beartype(conf=BeartypeConf(is_pep484_tower=True))
