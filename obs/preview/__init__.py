"""Draws Grafana dashboards without Grafana: one HTML page each, from their JSON and a Prometheus.

``load`` reads the JSON, ``source`` opens the Prometheus (a live one, or a private one filled with a recording), ``query``
resolves variables and asks as Grafana does, ``field`` and ``units`` say how a value looks, ``draw`` holds one module per
kind of panel, ``page`` puts them together, ``browser`` takes a picture of the page.

What is not drawn is named on the page: a panel of another kind is a box with its name, a feature that is not drawn a note
under the panel.
"""
