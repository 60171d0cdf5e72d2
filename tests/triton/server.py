"""A real Triton, CPU only, from the wheel of nvidia-pytriton, without importing PyTriton.

    pip install --no-deps nvidia-pytriton==0.7.0
    pip install "numpy<2"

is all it needs: the wheel carries `tritonserver` and, for each Python version, a Python backend, which imports
numpy and nothing else. (With numpy 2 the backend's outputs are empty and every request answers 500.)
"""

import importlib.metadata
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from .process import ServerFailed, ServingProcess, free_ports, get

DISTRIBUTION = "nvidia-pytriton"
MODELS = Path(__file__).parent / "models"
STUB = "triton_python_backend_stub"
SHARED_MEMORY = Path("/dev/shm")
READY_SECONDS = 30


def why_not() -> str | None:
    """Why no Triton can be started here, or None."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the Triton of {DISTRIBUTION} runs on Linux x86_64, this is {sys.platform} {platform.machine()}"
    if package_root() is None:
        return f"{DISTRIBUTION} is not installed"
    if not stub_path().exists():
        return f"{DISTRIBUTION} has no Python backend for Python {python_version()}"
    numpy = numpy_version()
    if numpy is None or not numpy.startswith("1."):
        return f"Triton's Python backend needs numpy 1, here is {numpy or 'none'}"
    if libpython_folder() is None:
        return f"this Python has no shared library {libpython_name()} (Triton's Python backend loads it)"
    return None


def package_root() -> Path | None:
    """The site-packages folder that holds the wheel."""
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(distribution.locate_file("")))


def tritonserver_folder() -> Path:
    root = package_root()
    if root is None:
        raise ServerFailed(f"{DISTRIBUTION} is not installed")
    return root / "pytriton" / "tritonserver"


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def stub_path() -> Path:
    return tritonserver_folder() / "python_backend_stubs" / python_version() / STUB


def libpython_name() -> str:
    return f"libpython{python_version()}.so.1.0"


def libpython_folder() -> Path | None:
    folders = [Path(sys.base_prefix) / "lib"]
    if libdir := sysconfig.get_config_var("LIBDIR"):
        folders += [Path(libdir), Path(libdir) / (sysconfig.get_config_var("MULTIARCH") or "")]
    return next((folder for folder in folders if (folder / libpython_name()).exists()), None)


def numpy_version() -> str | None:
    try:
        return importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return None


def prepare(folder: Path, models: Path) -> Path:
    """Copy what runs, for the wheel's files carry no x bit and may be read-only; returns the binary.

    The stub built for this Python must lie beside libtriton_python.so. The models are copied too, as the stub
    writes bytecode next to them whatever PYTHONDONTWRITEBYTECODE says.
    """
    source = tritonserver_folder()
    binary = folder / "tritonserver"
    backend = folder / "backends" / "python"
    without_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(models, folder / "models", ignore=without_bytecode)
    shutil.copytree(source / "backends" / "python", backend, ignore=without_bytecode)
    shutil.copyfile(stub_path(), backend / STUB)
    shutil.copyfile(source / "bin" / "tritonserver", binary)
    binary.chmod(0o755)
    (backend / STUB).chmod(0o755)
    return binary


def environment() -> Mapping[str, str]:
    """For the server and the stubs it starts: the wheel's libraries, and this very Python in the stub.

    The stub embeds libpython with the environment switched off: it heeds neither PYTHONPATH nor PYTHONHOME, and
    takes its site-packages from the first `python3` on PATH.
    """
    libraries = [libpython_folder(), tritonserver_folder().parents[1] / "nvidia_pytriton.libs"]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder) for folder in libraries if folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


class TritonServer:
    """`with TritonServer(tmp_path, "--metrics-config=summary_latencies=true") as triton:` on free loopback ports."""

    def __init__(self, folder: Path, *flags: str, models: Path = MODELS) -> None:
        self.folder = folder
        self.flags = flags
        self.models = models
        self.http_port, self.metrics_port = free_ports(2)
        self.shared_memory_prefix = f"obs-test-{self.http_port}-"
        self.process: ServingProcess | None = None

    def command(self, binary: Path) -> Sequence[str]:
        return [
            str(binary),
            f"--model-repository={self.folder / 'models'}",
            f"--backend-directory={self.folder / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={self.shared_memory_prefix}",
            "--http-address=127.0.0.1",
            f"--http-port={self.http_port}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={self.metrics_port}",
            "--allow-grpc=false",
            *self.flags,
        ]

    def __enter__(self) -> "TritonServer":
        if reason := why_not():
            raise ServerFailed(reason)
        command = self.command(prepare(self.folder, self.models))
        self.process = ServingProcess(command, self.folder / "tritonserver.log", environment())
        try:
            self.process.wait_ready(self.http_port, "/v2/health/ready", READY_SECONDS)
            # Triton opens the metrics port after the HTTP port: ready does not mean that it can be scraped.
            self.process.wait_ready(self.metrics_port, "/metrics", READY_SECONDS)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        for left_by_a_killed_server in SHARED_MEMORY.glob(f"{self.shared_memory_prefix}*"):
            left_by_a_killed_server.unlink()

    @property
    def metrics_target(self) -> str:
        return f"127.0.0.1:{self.metrics_port}"

    def metrics(self) -> str:
        status, body = get(self.metrics_port, "/metrics")
        if status != 200:
            raise ServerFailed(f"/metrics answered {status}")
        return body.decode()
