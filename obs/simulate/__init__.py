"""A discrete-event simulator of LLM replicas under an autoscaler: which signal scales best, at what target.

    hardware   cost model of a GPU and a model: data with sources
    engine     one replica: continuous batching, paged KV cache, preemption; nothing but its own clock
    arrivals   requests: Poisson, bursts, diurnal, BurstGPT's shape, trace files
    router     which replica gets a request
    observe    the replica's metrics page, read by the sidecar's own code (obs.sidecar)
    store      what Prometheus knows: scrapes, staleness, look-back
    hpa, keda  the controllers' arithmetic, as pure functions
    policies   candidate signals and targets: data
    scenarios  the regimes: data
    fleet      the event loop that joins them
    compare    policies × scenarios × seeds, with confidence intervals
    report     tables, JSON, HTML

Time is simulated seconds from 0; nothing here reads a clock or sleeps. All randomness comes from a seed.
"""
