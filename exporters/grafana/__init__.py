"""Grafana's dashboards and provisioning, generated from the metric catalogue, so that they fit this version's metrics.

Part of the package, not of deploy/, because whoever installs rltriage with pip has a Grafana, too: `rltriage export
--grafana DIR`. deploy/grafana holds what this writes.
"""

from __future__ import annotations

import json

from rltriage.exporters.grafana.fleet import fleet_dashboard
from rltriage.exporters.grafana.provisioning import PROVISIONING
from rltriage.exporters.grafana.run import run_dashboard
from rltriage.rules.catalogue import load_catalogue


def files(page: str = "", docs: str = "", recorded: bool = False) -> dict[str, str]:
    """Each file's path below the folder and its text.

    `page` is the address of the on-call page and `docs` that of the pages of docs/: what the dashboards link to.
    `recorded` makes the fleet's dashboard read the recording rules instead of every run.
    """
    metrics = load_catalogue().metrics
    dashboards = (fleet_dashboard(page, docs, recorded), run_dashboard(metrics, page, docs))
    found = {f"dashboards/{each['uid']}.json": json.dumps(each, indent=1, ensure_ascii=False) + "\n" for each in dashboards}
    return found | {f"provisioning/{name}": text for name, text in PROVISIONING.items()}
