"""The dashboards against Grafana's own types, checked by the TypeScript compiler."""

import copy
import json
import re

import pytest

FOLDERS = {
    "timeseries": "timeseries/panelcfg/x/TimeSeriesPanelCfg",
    "stat": "stat/panelcfg/x/StatPanelCfg",
    "table": "table/panelcfg/x/TablePanelCfg",
    "bargauge": "bargauge/panelcfg/x/BarGaugePanelCfg",
    "state-timeline": "statetimeline/panelcfg/x/StateTimelinePanelCfg",
}
WITHOUT_CUSTOM = ("stat", "bargauge")
HEAD = """
import type { AnnotationQuery, Dashboard, DataQuery } from '@grafana/schema';
// JSON has the values of enums as plain text, so a text enum is the union of its values here.
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
// Of the Prometheus data source, which the schema leaves open.
interface Target extends DataQuery {
  expr: string; legendFormat?: string; format: 'time_series' | 'table' | 'heatmap'; instant: boolean; range: boolean;
  editorMode: 'code' | 'builder';
}
type Annotation = Omit<Plain<AnnotationQuery>, 'target'> & {
  target: DataQuery & { expr: string; interval?: string };
  titleFormat?: string; textFormat?: string; tagKeys?: string; useValueForTime?: 'on' | boolean;
};
type Ours = Omit<Plain<Dashboard>, 'annotations'> & { annotations: { list: Annotation[] } };
"""


def typescript(dashboard):
    """A program that compiles if the dashboard, and each panel by its own type, is what Grafana reads."""
    panels = [each for panel in dashboard["panels"] for each in (panel, *panel.get("panels", [])) if each["type"] != "row"]
    lines = [HEAD]
    for kind in sorted({panel["type"] for panel in panels}):
        path = f"./node_modules/@grafana/schema/dist/types/raw/composable/{FOLDERS[kind]}_types.gen"
        lines.append(f"import type * as {kind.replace('-', '')} from '{path}';")
    lines.append(f"export const dashboard: Ours = {json.dumps(dashboard)};")
    for panel in panels:
        kind, number = panel["type"].replace("-", ""), panel["id"]
        lines.append(f"export const options{number}: Partial<Plain<{kind}.Options>> = {json.dumps(panel['options'])};")
        lines.append(f"export const targets{number}: Target[] = {json.dumps(panel['targets'])};")
        custom = panel["fieldConfig"]["defaults"]["custom"]
        if panel["type"] in WITHOUT_CUSTOM:
            assert custom == {}
        else:
            lines.append(f"export const custom{number}: Partial<Plain<{kind}.FieldConfig>> = {json.dumps(custom)};")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["fleet", "run"])
def test_grafana_s_types_accept_the_dashboard(compile_typescript, dashboards, name):
    """Every key and every kind of value, down to the options of each panel."""
    assert compile_typescript(typescript(dashboards[name])) == ""


def test_grafana_s_types_refuse_what_is_wrong(compile_typescript, dashboards):
    """A misspelt key, a number as text, a place in words and an option of another panel, each on its own line."""
    wrong = copy.deepcopy(dashboards["fleet"])
    wrong["schemaVersion"] = "41"
    found = compile_typescript(typescript(wrong))
    assert "Type 'string' is not assignable to type 'number'" in found and len(re.findall("error TS", found)) == 1
    wrong = copy.deepcopy(dashboards["fleet"])
    panel = next(each for each in wrong["panels"] if each["type"] == "stat")
    panel["options"]["colourMode"] = panel["options"].pop("colorMode")
    panel["targets"][0]["exp"] = panel["targets"][0].pop("expr")
    panel["fieldConfig"]["defaults"]["thresholds"]["mode"] = "relative"
    found = compile_typescript(typescript(wrong))
    assert len(re.findall(r"error TS", found)) >= 3
    assert all(word in found for word in ("colourMode", "exp", "relative")), found
