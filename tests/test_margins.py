"""No threshold of the shipped pack has been fitted to a single case: the guard, and proof that it finds one."""

import importlib.util
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from rltriage.rules.conditions.terms import number
from rltriage.rules.conditions.threshold import Threshold

ROOT = Path(__file__).parents[1]
LOGS = Path(os.environ.get("RLTRIAGE_CASES", "/nonexistent")) / "real-logs"


@cache
def margins():
    """benchmarks/margins.py, which is no part of the package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("benchmarks_margins", ROOT / "benchmarks" / "margins.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


@cache
def measured():
    """The shipped pack on every case, one seed of each group and, where they are, the real logs."""
    found = margins()
    bench = found.Bench()
    logs = found.logs(LOGS) if LOGS.is_dir() else ()
    return found.measure(bench.pack, [*found.cases(bench), *found.recorded(1), *logs])


def test_no_number_lies_within_10_percent_of_a_single_case():
    """Where moving a number by 10 % changes the verdict on one case or log, it does so on a second source."""
    assert {str(limit): source for limit, source in measured().fitted().items()} == {}


def test_the_guard_looks_at_every_number():
    """Nearly every rule has a level, hundreds of numbers are moved, and some of them matter to some source."""
    close = measured().close
    assert len(close) >= 250 and len({limit.rule for limit in close}) >= 90
    assert sum(bool(found) for found in close.values()) >= 10


def test_a_threshold_fitted_to_one_case_is_found():
    """A limit just below what one case shows is reported with that case; one far above every case is not."""
    found = margins()
    bench = found.Bench()
    rule = next(rule for rule in bench.pack.rules if rule.id == "advantage-blowup")
    sources = list(found.cases(bench))
    shown = {
        source.name: max((row.metrics["approx_kl"] for row in source.rows if "approx_kl" in row.metrics), default=0.0)
        for source in sources
    }
    name, peak = max(shown.items(), key=lambda item: item[1])

    def fitted(limit):
        planted = replace(rule, id="planted", when=Threshold(metric="approx_kl", above=number(limit)), unless=None)
        return found.measure(replace(bench.pack, rules=(planted,)), sources).fitted()

    ((limit, where),) = fitted(peak / 1.05).items()
    assert (limit.rule, where) == ("planted", name)
    assert fitted(peak * 1.3) == {}
