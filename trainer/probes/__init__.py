"""Probes of trainers that other people use: `rltriage.trainer.probes.trl.GRPOProbe`. Importing the package loads nothing."""
