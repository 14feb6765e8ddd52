"""What lives inside a training process: the reference trainer, the invariants, the flight recorder, the hooks.

Names are resolved on first use, because importing the package must not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltriage.trainer.config import TrainConfig, config_facts
    from rltriage.trainer.faults import FAULTS, InjectableFault, faulty_config, find_fault
    from rltriage.trainer.invariants import CHECKS, CheckResult, TrainerProbe, as_metrics, run_checks
    from rltriage.trainer.loop import train
    from rltriage.trainer.probe import reference_probe

_HOME = {
    "TrainConfig": "config",
    "config_facts": "config",
    "FAULTS": "faults",
    "InjectableFault": "faults",
    "faulty_config": "faults",
    "find_fault": "faults",
    "CHECKS": "invariants",
    "CheckResult": "invariants",
    "TrainerProbe": "invariants",
    "as_metrics": "invariants",
    "run_checks": "invariants",
    "train": "loop",
    "reference_probe": "probe",
}
__all__ = [
    "CHECKS",
    "FAULTS",
    "CheckResult",
    "InjectableFault",
    "TrainConfig",
    "TrainerProbe",
    "as_metrics",
    "config_facts",
    "faulty_config",
    "find_fault",
    "reference_probe",
    "run_checks",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
