"""rltriage watches reinforcement-learning runs and names the fault and the first test to run.

Names are resolved on first use (PEP 562): importing any subpackage executes this file, and a training process should pay
for nothing that it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltriage.api import openrlhf_logger as openrlhf_logger
    from rltriage.api import sb3_callback as sb3_callback
    from rltriage.api import trl_callback as trl_callback
    from rltriage.api import verl_backend as verl_backend
    from rltriage.api import watch as watch
    from rltriage.engine.monitor import Monitor as Monitor
    from rltriage.engine.report import Alert as Alert
    from rltriage.engine.report import Incident as Incident
    from rltriage.engine.report import StepReport as StepReport
    from rltriage.engine.rows import Fact as Fact
    from rltriage.engine.rows import Row as Row
    from rltriage.engine.rows import Run as Run
    from rltriage.rules.catalogue import load_catalogue as load_catalogue
    from rltriage.rules.errors import RltriageError as RltriageError
    from rltriage.rules.loader import load_rules as load_rules
    from rltriage.watched import Watch as Watch

__version__ = "0.1.0"

_HOMES = {
    "Alert": "rltriage.engine.report",
    "Fact": "rltriage.engine.rows",
    "Incident": "rltriage.engine.report",
    "Monitor": "rltriage.engine.monitor",
    "RltriageError": "rltriage.rules.errors",
    "Row": "rltriage.engine.rows",
    "Run": "rltriage.engine.rows",
    "StepReport": "rltriage.engine.report",
    "Watch": "rltriage.watched",
    "load_catalogue": "rltriage.rules.catalogue",
    "load_rules": "rltriage.rules.loader",
    "openrlhf_logger": "rltriage.api",
    "sb3_callback": "rltriage.api",
    "trl_callback": "rltriage.api",
    "verl_backend": "rltriage.api",
    "watch": "rltriage.api",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rltriage' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
