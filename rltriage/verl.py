"""`VERL_USE_EXTERNAL_MODULES=rltriage.verl` gives verl the tracking backend `rltriage`; options: `rltriage.verl_backend`."""

from rltriage.api import verl_backend

verl_backend()
