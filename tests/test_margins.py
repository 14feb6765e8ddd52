"""No threshold of the shipped pack has been fitted to a single case: the guard, and proof that it finds one."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import margins

from rltriage.rules.conditions.terms import number
from rltriage.rules.conditions.threshold import Threshold

LOGS = Path(os.environ.get("RLTRIAGE_CASES", "/nonexistent")) / "real-logs"


@cache
def measured():
    """The shipped pack on every case, one seed of each group and, where they are, the real logs."""
    bench = margins.Bench()
    logs = margins.logs(LOGS) if LOGS.is_dir() else ()
    return margins.measure(bench.pack, [*margins.cases(bench), *margins.recorded(1), *logs])


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
    bench = margins.Bench()
    rule = next(rule for rule in bench.pack.rules if rule.id == "advantage-blowup")
    sources = list(margins.cases(bench))
    shown = {
        source.name: max((row.metrics["approx_kl"] for row in source.rows if "approx_kl" in row.metrics), default=0.0)
        for source in sources
    }
    name, peak = max(shown.items(), key=lambda item: item[1])

    def fitted(limit):
        planted = replace(rule, id="planted", when=Threshold(metric="approx_kl", above=number(limit)), unless=None)
        return margins.measure(replace(bench.pack, rules=(planted,)), sources).fitted()

    ((limit, where),) = fitted(peak / 1.05).items()
    assert (limit.rule, where) == ("planted", name)
    assert fitted(peak * 1.3) == {}
