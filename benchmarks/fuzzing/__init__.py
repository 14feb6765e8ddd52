"""What hostile input is given to, by name; `benchmarks/fuzz.py` and the tests run it."""
