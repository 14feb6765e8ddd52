"""`VERL_USE_EXTERNAL_MODULES=rltriage.verl` gives verl the tracking backend `rltriage`, with the default options."""

from rltriage.api import verl_backend

verl_backend()
