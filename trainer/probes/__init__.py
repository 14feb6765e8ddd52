"""Probes of real trainers: `rltriage.trainer.probes.trl.GRPOProbe`. Importing the package loads nothing."""
