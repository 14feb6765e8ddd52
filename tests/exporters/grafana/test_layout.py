"""The dashboards' layout and promises: 24 columns, no overlap, a data source variable, words and units for every panel."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rltriage.exporters.grafana import files
from rltriage.exporters.grafana.panels import SOURCE, Panel, Row, placed
from rltriage.exporters.recording import ALL

DEPLOY = Path(__file__).parents[3] / "deploy" / "grafana"
NAMES = ("fleet", "recorded", "run")


def test_nothing_else_is_deployed():
    """Beside what is generated: a dashboard that got another name would be loaded twice."""
    assert {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()} == set(files())


@pytest.mark.parametrize("name", NAMES)
def test_panels_fill_a_grid_of_24_columns_without_overlap(dashboards, name):
    """Each cell belongs to one panel, also inside collapsed rows."""
    taken = {}
    panels = [each for panel in dashboards[name]["panels"] for each in (panel, *panel.get("panels", []))]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["w"] > 0 and place["h"] > 0
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], panel["title"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids)) and min(ids) > 0
    assert len({panel["title"] for panel in panels if panel["type"] == "row"}) >= 4


def test_a_panel_that_does_not_fit_starts_a_new_line():
    """Below the highest panel of the line before; a collapsed row keeps its panels inside."""
    tall, low = Panel("stat", "a", "a", (), width=16, height=9), Panel("stat", "b", "b", (), width=8, height=4)
    found = placed([Row("one", (tall, low, low)), Row("two", (low,), collapsed=True)])
    places = [(each["title"], each["gridPos"]["x"], each["gridPos"]["y"]) for each in found]
    assert places == [("one", 0, 0), ("a", 0, 1), ("b", 16, 1), ("b", 0, 10), ("two", 0, 14)]
    assert [(each["title"], each["gridPos"]["y"]) for each in found[-1]["panels"]] == [("b", 15)]
    assert found[0]["panels"] == [] and found[-1]["collapsed"] is True


def test_the_data_source_is_a_variable_everywhere(dashboards):
    """No identifier of somebody's Grafana is in the files."""
    for dashboard in dashboards.values():
        text = json.dumps(dashboard)
        refs = re.findall(r'"datasource": (\{.*?\}"\})', text)
        assert len(refs) > 20 and all(json.loads(ref) == SOURCE for ref in refs)
        variables = {each["name"]: each for each in dashboard["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
        used = set(re.findall(r"\$\{(\w+)", text)) - {"__field", "__value", "__data", "__url_time_range"}
        used |= set(re.findall(r"\$(\w+)", text)) - {"__rate_interval"}
        assert used <= set(variables), used - set(variables)


def test_every_panel_has_words_and_numbers_have_units(every_panel):
    """Title, description, unit, thresholds, and a legend wherever several series would be told apart by it."""
    for name, panel in every_panel:
        where = f"{name}: {panel['title']}"
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"] and panel["description"].rstrip()[-1] in ".*", where
        assert defaults["unit"] and defaults["thresholds"]["steps"][0]["value"] is None, where
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGHIJ")[: len(panel["targets"])], where
        for target in panel["targets"]:
            assert target["format"] == "table" or target.get("legendFormat") or panel["type"] == "stat", where


def test_every_metric_of_the_catalogue_is_on_the_run_s_dashboard(dashboards, metrics):
    """With its words; so a metric that is added to the catalogue is never without a panel."""
    text = json.dumps(dashboards["run"])
    for info in metrics.values():
        if info.prometheus:
            assert info.prometheus in text, info.name
            assert "<id>" in info.name or json.dumps(info.help)[1:-1] in text, info.name


def test_every_family_in_an_expression_is_exported(every_panel, exported):
    """Only recording rules add names of their own."""
    known = exported | {name.replace("rltriage_", "rltriage_healthy_", 1) for name in exported} | {"rltriage_extra_"}
    for name, panel in every_panel:
        for target in panel["targets"]:
            words = set(re.findall(r"(?:\w+:)?rltriage_\w+(?::\w+)?", target["expr"]))
            recorded = {each.record for each in ALL} if name == "recorded" else set()
            assert words <= known | recorded, (panel["title"], words - known)


def test_healthy_ranges_shade_between_their_own_bounds(dashboards):
    """The upper bound is filled down to the lower one of the same metric, and both series are there."""
    shaded = 0
    for panel in dashboards["run"]["panels"]:
        legends = {target.get("legendFormat") for target in panel.get("targets", [])}
        for override in panel.get("fieldConfig", {}).get("overrides", []):
            upper = override["matcher"]["options"]
            for property_ in override["properties"]:
                if property_["id"] == "custom.fillBelowTo":
                    assert {upper, property_["value"]} <= legends
                    assert property_["value"] == upper.removesuffix("to") + "from"
                    shaded += 1
    assert shaded == 13


def test_alerts_are_annotations_and_links_lead_on(dashboards):
    """Marks over every curve; suspects to the runbook, runs to their dashboard and page."""
    run, fleet = dashboards["run"], json.dumps(dashboards["fleet"])
    assert [each["name"] for each in run["annotations"]["list"]] == ["critical alerts", "warning alerts"]
    assert all('run="$run"' in each["target"]["expr"] for each in run["annotations"]["list"])
    text = json.dumps(run)
    assert "${docs}/faults.md#${__value.raw}" in text and "${page}/runs/${run:percentencode}" in text
    assert f"/d/{run['uid']}?var-datasource=${{datasource}}&var-run=${{__data.fields.run}}" in fleet
    made = files("https://page.example/", "https://docs.example/d/")
    variables = json.loads(made["dashboards/rltriage-run.json"])["templating"]["list"]
    values = {each["name"]: each["query"] for each in variables if each["type"] == "constant"}
    assert values == {"page": "https://page.example", "docs": "https://docs.example/d"}


def test_provisioning_says_where_the_dashboards_and_the_data_are():
    """As Grafana's documents have it: one data source, one provider, version 1."""
    made = files()
    source = yaml.safe_load(made["provisioning/datasources/rltriage.yaml"])
    assert source["apiVersion"] == 1 and {each["type"] for each in source["datasources"]} == {"prometheus"}
    provider = yaml.safe_load(made["provisioning/dashboards/rltriage.yaml"])
    assert provider["apiVersion"] == 1 and provider["providers"][0]["type"] == "file"
    assert provider["providers"][0]["options"]["path"].startswith("/")
    assert not any("$" in made[name] for name in made if name.startswith("provisioning/"))
