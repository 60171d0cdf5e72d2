"""Checks of Kubernetes manifests that scale a service: ours, and anybody's (``obs check --manifests``)."""
