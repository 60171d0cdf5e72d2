"""A kustomize base: rules, monitors and dashboards, with nothing outside its folder (kustomize refuses to read there)."""

from __future__ import annotations

from typing import Any

from obs.render.kubernetes import chosen_monitors, dashboard_name, rule_objects, text
from obs.render.pack import Pack, header
from obs.render.prometheus import dump


def files(pack: Pack) -> dict[str, str]:
    deploy = pack.config.deploy
    objects = {f"rules/{name}.yaml": text(one) for name, one in rule_objects(pack, namespaced=False).items()}
    objects |= {f"monitors/{name}.yaml": text(one) for name, one in chosen_monitors(pack).items()}
    options: dict[str, Any] = {
        # Grafana's sidecar would read each new name as one more dashboard.
        "disableNameSuffixHash": True,
        "labels": dict(deploy.grafana.dashboard_labels),
    }
    if deploy.grafana.folder:
        options["annotations"] = {deploy.grafana.folder_annotation: deploy.grafana.folder}
    base = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": deploy.namespace,
        "resources": list(objects),
        "configMapGenerator": [
            {"name": dashboard_name(file), "files": [f"dashboards/{file}"], "options": options}
            for file in pack.dashboard_texts
        ],
    }
    about = header(
        "#", "kubectl apply -k . or resources: [this folder] in your own kustomization, with patches of yours. Leave out what",
        "another source brings already: two monitors of one server count everything twice.",
    )
    return {
        "kustomization.yaml": about + dump(base),
        **objects,
        **{f"dashboards/{file}": json_text for file, json_text in pack.dashboard_texts.items()},
    }
