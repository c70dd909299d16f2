"""A fuzzer of the checkpoint database: files that were damaged or made to lie, and a judge of what loading them gives.

Each case is a function of a seed and a number alone. `corpus` holds whole databases, `mutate` changes their bytes and
`lies` what they say, as a `model` that can be put together again, with JSON from `documents`; `judge` reads what is
left with means of its own, `oracle` loads it and compares, `native` calls the units below directly.
``PYTHONPATH=src:tests python -m fuzz --seconds 600`` runs them for long.
"""
