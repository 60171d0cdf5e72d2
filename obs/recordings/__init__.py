"""The recorded series that alerts and dashboards share: their names, their labels and the rules that write them."""
