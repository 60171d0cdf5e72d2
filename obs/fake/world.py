"""The whole stand-in: models, GPU, faults and time. No sockets and no clock: ``advance(until)`` is the only way of time.

Time goes in ticks of TICK seconds from the start; what happens depends on the seed and on the ticks at which it was
told something, not on how often it is asked.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from obs.engines import engine as engine_named
from obs.errors import InputError
from obs.fake.ledger import Ledger, page, served
from obs.fake.llm import LlmModel, Size
from obs.fake.load import Arrivals, Load
from obs.fake.queueing import Done, QueueModel, Service
from obs.model.metric import Engine, Missing, Native
from obs.sidecar.dialects import PROCESS_START
from obs.simulate import hardware as hardware_
from obs.simulate.arrivals import Lengths

TICK = 0.05
MEASURED_TICKS = 20
"""The GPU is looked at once a second (Triton: --metrics-interval-ms, 2 s; DCGM: 1 s)."""
ENGINES = ("triton", "triton-vllm", "triton-trtllm", "vllm")

#: Each fake engine's release, in the numbering that its catalogue's since/until use, and what its server calls itself.
#: Triton 26.06 is 2.70.0 (see obs/sidecar/readiness.py, VULNERABILITIES): the first without the hole it knows.
RELEASES = {"triton": "26.06", "triton-vllm": "26.06", "triton-trtllm": "1.2.1", "vllm": "0.32"}
TRITON_VERSIONS = {"24.10": "2.51.0", "26.05": "2.69.0", "26.06": "2.70.0"}
VLLM_VERSION = "0.32.0"

FAULTS = ("kill", "restart", "hang", "503", "unload", "stall", "errors", "gpu-memory-full", "freeze-metrics", "slow")
NEEDS_SECONDS = ("kill",)
RESTART_SECONDS = 2.0

GPU_BYTES = 24 * 2**30
GPU_POWER = (30.0, 72.0)
"""Watts at rest and at most: an L4's order of magnitude."""
PREALLOCATED = 0.92
"""What LLM engines take at start whatever they do with it (vLLM's default gpu_memory_utilization)."""
LENGTHS = Lengths(prompt=300, prompt_sigma=0.6, output=200, output_sigma=0.6, longest_prompt=4_000, longest_output=1_500)
MAX_MODEL_LEN = 8192


@dataclass(frozen=True)
class Spec:
    """What to stand in for. ``rate`` is the first load of every model, requests per second.

    ``flags`` are texts with which a family's ``enabled_by`` begins, for families that are off by default.
    """

    engine: str = "triton"
    models: Sequence[str] = ("resnet50", "bert")
    rate: float = 20.0
    seed: int = 1
    gpus: int = 1
    release: str = ""
    flags: Sequence[str] = ()
    service: Service = field(default_factory=Service)
    hardware: str = "reference-40k"
    max_model_len: int = MAX_MODEL_LEN

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(f"--engine {self.engine!r} is none of {', '.join(ENGINES)}")
        if not self.models or len(set(self.models)) != len(self.models) or not all(self.models):
            raise InputError("--model: give each model once, with a name")
        if self.engine == "vllm" and len(self.models) > 1:
            raise InputError("--model: vLLM serves one model; start one fake engine for each")
        if not 0 <= self.gpus <= 16:
            raise InputError("--gpus must be 0 to 16")
        if self.hardware not in hardware_.ENGINES:
            raise InputError(f"--hardware {self.hardware!r} is none of {', '.join(hardware_.ENGINES)}")
        if self.triton and self.release and self.release not in TRITON_VERSIONS:
            raise InputError(f"--release {self.release!r} is none of {', '.join(TRITON_VERSIONS)}")

    @property
    def triton(self) -> bool:
        """Whether the server is Triton, whatever the backend."""
        return self.engine != "vllm"


@dataclass(frozen=True)
class Fault:
    """One fault that holds, until a time (0: until cleared), on a model ("" = all)."""

    kind: str
    until: float = 0.0
    model: str = ""
    value: float = 0.0


class World:
    """Models, faults and pages of one server. Every public method may be called from any thread."""

    def __init__(self, spec: Spec, start: float) -> None:
        self.spec = spec
        self.lock = threading.RLock()
        self.start = start
        self.faults: list[Fault] = []
        self.loads: dict[str, Load] = dict.fromkeys(spec.models, Load(rate=spec.rate))
        self.down_until = 0.0
        """While later than now, the server does not exist: nothing listens."""
        self.restarts = 0
        self._ticks = 0
        self._frozen: str | None = None
        self._utilization = 0.0
        self._busy = 0.0
        self._boot(start)

    @property
    def now(self) -> float:
        """Unix seconds of the last tick."""
        return self.start + self._ticks * TICK

    @property
    def down(self) -> bool:
        return self.down_until > self.now

    def fault(self, kind: str) -> Fault | None:
        """The fault of this kind that holds, if any."""
        with self.lock:
            return next((one for one in self.faults if one.kind == kind), None)

    # --- time -----------------------------------------------------------------------------------

    def advance(self, until: float) -> None:
        """All whole ticks up to ``until`` (unix seconds)."""
        with self.lock:
            while self.now + TICK <= until:
                self._ticks += 1
                self._tick(self.now)

    def _tick(self, now: float) -> None:
        if over := [one for one in self.faults if 0 < one.until <= now]:
            for fault in over:
                self._lift(fault)
        if self.down_until:
            if self.down_until > now:
                return
            self.down_until = 0.0
            self.restarts += 1
            self._boot(now)
        for model in self.models.values():
            model.advance(now)
        if self._ticks % MEASURED_TICKS == 0:
            busy = sum(model.busy_seconds for model in self.models.values())
            self._measure(max(0.0, busy - self._busy) / (MEASURED_TICKS * TICK))
            self._busy = busy

    def _boot(self, now: float) -> None:
        """The server starts: every counter from 0."""
        spec = self.spec
        self.booted = now
        release = spec.release or RELEASES[spec.engine]
        triton_release = release if release in TRITON_VERSIONS else RELEASES["triton"]
        self.version = TRITON_VERSIONS[triton_release] if spec.triton else VLLM_VERSION
        self.engine = engine_named(spec.engine)
        self.core = engine_named("triton") if spec.triton else self.engine
        self.core_metrics = served(self.core, triton_release if spec.triton else release, spec.flags)
        backend_flags = ("REPORT_CUSTOM_METRICS", *spec.flags)
        self.backend_metrics = () if spec.engine in ("triton", "vllm") else served(self.engine, release, backend_flags)
        own = [metric for metric in self.core_metrics
               if not {"model", "model_name", "gpu_uuid", "engine"} & set(metric.labels)]
        http = {"handler": "/v1/completions", "method": "POST"}
        self.server = Ledger(self.core, own, {} if spec.triton else http, start=now)
        of_gpu = [one for one in self.core_metrics if "gpu_uuid" in one.labels]
        self.gpus = [Ledger(self.core, of_gpu, {"gpu_uuid": _uuid(spec, index)}, start=now)
                     for index in range(spec.gpus if spec.triton else 0)]
        dcgm = engine_named("dcgm")
        self.dcgm_metrics = served(dcgm, "")
        self.dcgm = [Ledger(dcgm, self.dcgm_metrics, {
            "gpu": str(index), "UUID": _uuid(spec, index), "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
            "device": f"nvidia{index}", "modelName": "NVIDIA L4", "Hostname": "fake-engine",
        }, start=now) for index in range(spec.gpus)]
        self.models: dict[str, QueueModel | LlmModel] = {}
        self.cores: dict[str, Ledger] = {}
        self.backends: dict[str, Ledger] = {}
        self.remains: dict[str, Ledger] = {}
        """Of unloaded models: a real Triton (2.51) goes on serving their failure counters, as recorded in tests/data."""
        self._frozen = None
        self.faults = [one for one in self.faults if one.kind not in ("freeze-metrics", "kill", "restart")]
        unloaded = {one.model for one in self.faults if one.kind == "unload"}
        for name in spec.models:
            if name not in unloaded:
                self._load_model(name)
        self._busy = 0.0
        self._measure(0.0)

    def _load_model(self, name: str) -> None:
        spec, now = self.spec, self.now
        dice = random.Random(f"{spec.seed}/{name}/{self.restarts}")
        arrivals = Arrivals(self.loads[name], random.Random(f"{spec.seed}/{name}/{self.restarts}/arrivals"), now)
        labels = {"model": name, "version": "1"} if spec.triton else {"model_name": name, "engine": "0"}
        of_model = [one for one in self.core_metrics if {"model", "model_name", "engine"} & set(one.labels)]
        core = Ledger(self.core, of_model, labels, start=now, longest=spec.max_model_len)
        self.cores[name] = core
        self.remains.pop(name, None)
        if spec.engine == "triton":
            self.models[name] = QueueModel(core, spec.service, arrivals, dice, now)
        else:
            backend = core
            if spec.triton:
                backend = Ledger(self.engine, self.backend_metrics, labels, start=now, longest=spec.max_model_len)
                self.backends[name] = backend
            self.models[name] = LlmModel(hardware_.ENGINES[spec.hardware], LENGTHS, backend, core if spec.triton else None,
                                         None if spec.triton else self.server, arrivals, dice, now)
        if spec.triton:
            core.put_family("nv_model_load_duration_secs", 1.5)
        for fault in self.faults:
            self._apply(fault)

    def _unload_model(self, name: str) -> None:
        if model := self.models.pop(name, None):
            model.drop_all("the model was unloaded")
        core = self.cores.pop(name, None)
        self.backends.pop(name, None)
        if core is not None:
            kept = {source.metric for source in _natives(self.core, "request_failures")}
            core.keep(kept)
            self.remains[name] = core

    # --- what it is told -------------------------------------------------------------------------

    def set_load(self, load: Load, model: str = "") -> None:
        """Another load, for one model or all."""
        with self.lock:
            for name in self.names(model):
                self.loads[name] = load
                if name in self.models:
                    self.models[name].arrivals.set(load, self.now)

    def check_fault(self, kind: str, *, seconds: float = 0.0, model: str = "", value: float = 0.0) -> None:
        """InputError when ``set_fault`` would refuse it; nothing is changed."""
        if kind not in FAULTS:
            raise InputError(f"fault {kind!r} is none of {', '.join(FAULTS)}")
        self.names(model)
        if not 0 <= seconds <= 86_400:
            raise InputError(f"fault {kind}: seconds {seconds!r} is not 0 to 86400")
        if kind in NEEDS_SECONDS and seconds <= 0:
            raise InputError(f"fault {kind}: say for how many seconds")
        if kind == "errors" and not 0 < value <= 1:
            raise InputError("fault errors: give the ratio as value, above 0 up to 1")
        if kind == "slow" and not 1 <= value <= 1000:
            raise InputError("fault slow: give the factor as value, 1 to 1000")
        if kind == "unload" and not self.spec.triton:
            raise InputError("fault unload: vLLM cannot unload its model; use kill")

    def set_fault(self, kind: str, *, seconds: float = 0.0, model: str = "", value: float = 0.0) -> None:
        """A fault begins, for so many seconds (0: until cleared). One of the same kind and model is replaced."""
        with self.lock:
            self.check_fault(kind, seconds=seconds, model=model, value=value)
            if kind in ("kill", "restart"):
                for running in self.models.values():
                    running.drop_all("the server went down")
                self.down_until = self.now + (seconds or RESTART_SECONDS)
                return
            self.clear(kind, model)
            fault = Fault(kind, self.now + seconds if seconds else 0.0, model, value)
            self.faults.append(fault)
            self._apply(fault)

    def clear(self, kind: str = "", model: str = "") -> None:
        """Lift the faults of a kind and model; without them, all. A killed server starts again."""
        with self.lock:
            self.names(model)
            if self.down and kind in ("", "kill", "restart"):
                self.down_until = self.now
            for fault in [one for one in self.faults if kind in ("", one.kind) and model in ("", one.model)]:
                self._lift(fault)

    def submit(self, model: str, done: Done, size: Size | None = None) -> bool:
        """A request from outside; False when there is no such model."""
        with self.lock:
            found = self.models.get(model)
            if found is None:
                return False
            if isinstance(found, LlmModel):
                found.submit(size, done)
            else:
                found.submit(self.now, done)
            return True

    def names(self, model: str) -> Sequence[str]:
        """The models meant: one, or all for "". InputError for a name that none has."""
        if model and model not in self.spec.models:
            raise InputError(f"model {model!r} is none of {', '.join(self.spec.models)}")
        return (model,) if model else tuple(self.spec.models)

    def _apply(self, fault: Fault) -> None:
        for name in self.names(fault.model):
            if fault.kind == "unload":
                self._unload_model(name)
            elif name in self.models:
                model = self.models[name]
                if fault.kind == "stall":
                    model.stalled = True
                elif fault.kind == "errors":
                    model.error_ratio = fault.value
                elif fault.kind == "slow":
                    model.slow = fault.value
        if fault.kind == "freeze-metrics" and self._frozen is None:
            self._frozen = self._page()

    def _lift(self, fault: Fault) -> None:
        self.faults.remove(fault)
        for name in self.names(fault.model):
            if fault.kind == "unload" and name not in self.models and not self.down:
                self._load_model(name)
            elif name in self.models:
                model = self.models[name]
                if fault.kind == "stall":
                    model.stalled = False
                elif fault.kind == "errors":
                    model.error_ratio = 0.0
                elif fault.kind == "slow":
                    model.slow = 1.0
        if fault.kind == "freeze-metrics":
            self._frozen = None
        for one in self.faults:
            self._apply(one)

    # --- what it tells ---------------------------------------------------------------------------

    def page(self) -> str:
        """The metrics page now."""
        with self.lock:
            return self._frozen if self._frozen is not None else self._page()

    def dcgm_page(self) -> str:
        """The page of a dcgm-exporter beside it."""
        with self.lock:
            return page(engine_named("dcgm"), self.dcgm_metrics, self.dcgm)

    def state(self) -> Mapping[str, object]:
        """For GET /control."""
        with self.lock:
            return {
                "engine": self.spec.engine, "version": self.version, "seed": self.spec.seed, "time": round(self.now, 3),
                "up_since": round(self.booted, 3), "down": self.down, "restarts": self.restarts,
                "faults": [{"fault": one.kind, "model": one.model, "value": one.value,
                            "seconds_left": round(one.until - self.now, 1) if one.until else None} for one in self.faults],
                "models": {name: {
                    "loaded": name in self.models,
                    "load": vars(self.loads[name]),
                    "running": self.models[name].running if name in self.models else None,
                    "waiting": _waiting(self.models[name]) if name in self.models else None,
                } for name in self.spec.models},
            }

    def _page(self) -> str:
        spec = self.spec
        ledgers = [*self.cores.values(), *self.remains.values(), self.server, *self.gpus]
        text = page(self.core, self.core_metrics, ledgers, python=not spec.triton)
        if spec.triton:
            return text + page(self.engine, self.backend_metrics, list(self.backends.values()))
        return (f"# HELP {PROCESS_START} Start time of the process since unix epoch in seconds.\n# TYPE {PROCESS_START} gauge\n"
                f"{PROCESS_START} {self.booted!r}\n{text}")

    def _measure(self, busy: float) -> None:
        """GPU and host, once a second: utilisation is the share of time in which a batch ran."""
        self._utilization = min(1.0, busy)
        seconds = MEASURED_TICKS * TICK
        full = self.fault("gpu-memory-full") is not None
        taken = 0.99 if full else PREALLOCATED if self.spec.engine != "triton" else 0.15 + 0.15 * len(self.models)
        used = min(0.99, taken) * GPU_BYTES
        watts = GPU_POWER[0] + (GPU_POWER[1] - GPU_POWER[0]) * self._utilization
        for ledger in (*self.gpus, *self.dcgm):
            ledger.put("gpu_memory_used_bytes", used)
            ledger.put("gpu_memory_total_bytes", GPU_BYTES)
            ledger.put("gpu_utilization", self._utilization)
            ledger.put("gpu_power_watts", watts)
        for ledger in self.gpus:
            ledger.put_family("nv_gpu_power_limit", GPU_POWER[1])
            ledger.add_family("nv_energy_consumption", watts * seconds)
        for ledger in self.dcgm:
            ledger.put_family("DCGM_FI_DEV_FB_FREE", max(0.0, GPU_BYTES * 0.99 - used) / 2**20)
            ledger.put_family("DCGM_FI_DEV_FB_RESERVED", GPU_BYTES * 0.01 / 2**20)
            ledger.put_family("DCGM_FI_DEV_GPU_TEMP", 35 + 40 * self._utilization)
            ledger.add_family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", watts * seconds * 1000)
        if self.spec.triton:
            for name, value in (("nv_cpu_utilization", 0.1 + 0.2 * self._utilization),
                                ("nv_cpu_memory_total_bytes", 64 * 2**30), ("nv_cpu_memory_used_bytes", 8 * 2**30),
                                ("nv_pinned_memory_pool_total_bytes", 256 * 2**20)):
                self.server.put_family(name, value)


def _natives(engine: Engine, signal: str) -> list[Native]:
    sources = engine.signals[signal]
    return [one for one in (() if isinstance(sources, Missing) else sources) if isinstance(one, Native)]


def _waiting(model: QueueModel | LlmModel) -> int:
    return len(model.queue) if isinstance(model, QueueModel) else model.waiting


def _uuid(spec: Spec, index: int) -> str:
    """As a driver's, and the same on every run."""
    digits = f"{random.Random(f'gpu/{spec.engine}/{spec.seed}/{index}').getrandbits(128):032x}"
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
