"""The exporter beside the engine: samples it on localhost, serves signals that an autoscaler can use.

One idea per module, from the wire to the wire::

    scrape.py     fetch one body: one target, one deadline, one size limit; every failure has a reason
    reader.py     the needed samples of a body, under their wire names, fast
    detect.py     which engines a page belongs to
    dialects.py   an engine's page -> one Reading per model (the names come from obs.engines)
    counters.py   counters that go on through resets and dips
    window.py     arithmetic on a series of points: rates, means, slopes
    estimate.py   what an engine hides, from what it shows
    model.py      one model's history -> its signals, or the reason why there is none
    signals.py    all models of the pod, freshness: feed(time, samples) and snapshot(time); no clock, no thread
    readiness.py  Triton's and vLLM's health, repository and version
    sampler.py    the threads and the clock that drive the above
    collector.py  a snapshot -> metric families of the catalogue
    server.py     /metrics, /signals, /healthz, /readyz

Unknown is absent, never 0. Only the standard library and prometheus_client are needed.
"""
