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
    from rltriage.trainer.parallel import Job, run_jobs
    from rltriage.trainer.probe import reference_probe
    from rltriage.trainer.recorder import FlightRecorder, find_recording, list_recordings
    from rltriage.trainer.replay import replay_step

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
    "Job": "parallel",
    "run_jobs": "parallel",
    "reference_probe": "probe",
    "FlightRecorder": "recorder",
    "find_recording": "recorder",
    "list_recordings": "recorder",
    "replay_step": "replay",
}
__all__ = [
    "CHECKS",
    "FAULTS",
    "CheckResult",
    "FlightRecorder",
    "InjectableFault",
    "Job",
    "TrainConfig",
    "TrainerProbe",
    "as_metrics",
    "config_facts",
    "faulty_config",
    "find_fault",
    "find_recording",
    "list_recordings",
    "reference_probe",
    "replay_step",
    "run_checks",
    "run_jobs",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
