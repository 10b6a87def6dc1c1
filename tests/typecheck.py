"""The type checker that the tests put on every function of the library."""

from beartype import BeartypeConf, beartype

# An integer will do where a float is wanted.
typecheck = beartype(conf=BeartypeConf(is_pep484_tower=True))
