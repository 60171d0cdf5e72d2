"""A jsonnet mixin over the rule files and dashboards: nothing is translated, jsonnet reads the shipped bytes.

``std.parseYaml`` needs jsonnet 0.18 (or go-jsonnet of the same number).
"""

from __future__ import annotations

import json

from obs.render.pack import Pack, header


def files(pack: Pack) -> dict[str, str]:
    """``mixin.libsonnet``, and the files that it reads beside it."""
    rules = "".join(f"    importstr 'rules/{name}',\n" for name in pack.rule_texts)
    dashboards = "".join(f"    '{name}': import 'dashboards/{name}',\n" for name in pack.dashboard_texts)
    library = header(
        "//", "(import 'obs/mixin.libsonnet') + your own mixins. Thresholds are changed in obs.yaml, not here.",
    ) + (
        "local files = [\n" + rules.replace("    ", "  ") + "];\n"
        "local groups = std.flattenArrays([std.parseYaml(text).groups for text in files]);\n"
        "local alerting(group) = std.objectHas(group.rules[0], 'alert');\n"
        "{\n"
        "  prometheusAlerts+:: {\n    groups+: [group for group in groups if alerting(group)],\n  },\n"
        "  prometheusRules+:: {\n    groups+: [group for group in groups if !alerting(group)],\n  },\n"
        "  grafanaDashboards+:: {\n" + dashboards + "  },\n"
        "}\n"
    )
    return {
        "mixin.libsonnet": library,
        # jsonnet-bundler's file; it has no comments
        "jsonnetfile.json": json.dumps({"version": 1, "dependencies": [], "legacyImports": True}, indent=2) + "\n",
        **{f"rules/{name}": text for name, text in pack.rule_texts.items()},
        **{f"dashboards/{name}": text for name, text in pack.dashboard_texts.items()},
    }
