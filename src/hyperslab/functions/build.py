"""The upload bundle of a function: the modules it needs, the packages it needs, and how to deploy them."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hyperslab.errors import HyperslabError, InternalError, InvalidInputError
from hyperslab.functions.deploy import deployment_files
from hyperslab.functions.reached import Reached, reached

__all__ = ["Bundle", "Target", "build_bundle"]

Target = Literal["aws", "gcp", "azure"]
Architecture = Literal["x86_64", "arm64"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What a provider takes, unpacked, and packed in one upload.
LIMIT_BYTES: dict[str, int | None] = {"aws": 250 << 20, "gcp": None, "azure": None}
_ZIP_LIMIT_BYTES = 50 << 20

_HANDLERS = {
    "aws": "hyperslab.functions.aws",
    "gcp": "hyperslab.functions.google",
    "azure": "hyperslab.functions.azure",
}
_AZURE_APP = """import azure.functions as func

from hyperslab.functions.azure import main

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)


@app.route(route="call", methods=["POST", "GET"])
def call(req: func.HttpRequest) -> func.HttpResponse:
    return main(req)
"""
_ENTRIES = {
    "aws": ("main.py", 'from hyperslab.functions.aws import lambda_handler\n\n__all__ = ["lambda_handler"]\n'),
    "gcp": ("main.py", 'from hyperslab.functions.google import handle\n\n__all__ = ["handle"]\n'),
    "azure": ("function_app.py", _AZURE_APP),
}
_HOST_JSON = """{
  "version": "2.0",
  "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"},
  "extensions": {"http": {"routePrefix": "api"}}
}
"""
# By the name that each is imported by. The same versions as Hyperslab itself takes.
_REQUIREMENTS = {
    "numpy": "numpy>=2",
    "obstore": "obstore>=0.12.1,<0.13",
    "numcodecs": "numcodecs>=0.16.4",
    "zlib_ng": "zlib-ng>=0.5",
    "zstandard": "zstandard>=0.22",
    "google_crc32c": "google-crc32c>=1.5",
    "azure": "azure-functions",
}
# What the framework of the provider brings along or asks for.
_FRAMEWORK = {"aws": [], "gcp": ["functions-framework>=3.5"], "azure": []}
_INIT = '"""The part of Hyperslab that runs beside the data."""\n'
_DATE = (1980, 1, 1, 0, 0, 0)
# Never used when a function runs: tests, sources of extensions, types, compiled files of this machine's Python.
_WASTE_FOLDERS = ("tests", "__pycache__", "bin", "include", "f2py", "distutils", "_pyinstaller")
_WASTE_ENDINGS = (".pyc", ".pyi", ".pxd", ".pyx", ".c", ".h", ".a", ".lib")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle in its folder: `function.zip` is what is uploaded, `function` the same unpacked."""

    target: Target
    folder: Path
    modules: int
    packages: tuple[str, ...]
    nbytes: int
    zip_nbytes: int

    @property
    def limit_bytes(self) -> int | None:
        """What the provider takes, unpacked."""
        return LIMIT_BYTES[self.target]


def build_bundle(
    target: Target,
    folder: str | os.PathLike[str],
    *,
    roots: Sequence[str] = (),
    python: str | None = None,
    architecture: Architecture = "x86_64",
    force: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Make the bundle of a function in `folder`, with the steps to deploy it and the permissions it needs.

    `roots` are the buckets and prefixes that it will read, for the permissions. For AWS the packages of others are
    installed into it, for that provider's machines; Google and Azure install them from `requirements.txt`. `say` is
    told what goes on. An existing folder is only written to with `force`.
    """
    version = _checked(target, python, architecture)
    place = Path(folder)
    if place.exists() and (not place.is_dir() or (any(place.iterdir()) and not force)):
        raise InvalidInputError(f"{place} exists already; choose another --output, or use --force to replace it")
    texts = deployment_files(target, roots, version, architecture)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hyperslab-function-", dir=place.parent) as scratch:
        made = Path(scratch)
        bundle = _make(target, made, version, architecture, say)
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        _move(made, place)
    return Bundle(target, place, bundle.modules, bundle.packages, bundle.nbytes, bundle.zip_nbytes)


def _make(target: Target, made: Path, version: str, architecture: Architecture, say: Callable[[str], None]) -> Bundle:
    function, needs = made / "function", reached(_HANDLERS[target])
    requirements = _requirements(needs, target)
    say(f"copying {len(needs.modules)} modules")
    _copy_modules(needs, function)
    name, text = _ENTRIES[target]
    (function / name).write_text(text, encoding="utf-8")
    if target == "azure":
        (function / "host.json").write_text(_HOST_JSON, encoding="utf-8")
    if target == "aws":
        say(f"installing {', '.join(requirements)} for Python {version} on {architecture}")
        _install(requirements, function, version, architecture)
        _strip(function)
        if version == _own_version():
            _compile(function)
        else:
            say(f"not compiled, so that a cold start imports for longer: run this with Python {version} to change that")
    else:
        (function / "requirements.txt").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    say("packing function.zip")
    nbytes = _pack(function, made / "function.zip")
    zip_nbytes, limit = (made / "function.zip").stat().st_size, LIMIT_BYTES[target]
    if limit is not None and (nbytes > limit or zip_nbytes > _ZIP_LIMIT_BYTES):
        raise InternalError(f"the function takes {zip_nbytes:,} bytes, {nbytes:,} unpacked: too many for {target}")
    packages = _versions(function) or tuple(requirements)
    return Bundle(target, made, len(needs.modules), packages, nbytes, zip_nbytes)


def _checked(target: str, python: str | None, architecture: str) -> str:
    """Return the version of Python to build for."""
    if target not in get_args(Target):
        raise InvalidInputError(f"target is one of {', '.join(get_args(Target))}, got {target!r}")
    if architecture not in get_args(Architecture):
        raise InvalidInputError(f"architecture is one of {', '.join(get_args(Architecture))}, got {architecture!r}")
    if python is None:
        return _own_version() if _own_version() in PYTHONS else PYTHONS[-1]
    if python not in PYTHONS:
        raise InvalidInputError(f"python is one of {', '.join(PYTHONS)}, got {python!r}")
    return python


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _requirements(needs: Reached, target: Target) -> list[str]:
    unknown = sorted(needs.packages - _REQUIREMENTS.keys())
    if unknown:
        raise InternalError(f"the function imports {', '.join(unknown)}, which its bundle does not know")
    return sorted([_REQUIREMENTS[name] for name in needs.packages] + _FRAMEWORK[target])


def _copy_modules(needs: Reached, function: Path) -> None:
    """Copy our modules; the package itself gets an empty file, so that it imports nothing of the rest."""
    for name, source in needs.modules.items():
        path = function.joinpath(*name.split("."))
        path = path / "__init__.py" if source.name == "__init__.py" else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    (function / "hyperslab" / "__init__.py").write_text(_INIT, encoding="utf-8")


def _install(requirements: list[str], function: Path, version: str, architecture: Architecture) -> None:
    if importlib.util.find_spec("pip") is None:
        raise InvalidInputError("the packages of the bundle are installed by pip, which is not there; install pip")
    tags = [f"--platform={tag}" for tag in _platforms(version, architecture)]
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile",
        "--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *tags,
        f"--target={function}", *requirements,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        reason = " ".join([line for line in done.stderr.splitlines() if line.startswith("ERROR")])[:500]
        raise HyperslabError(
            f"pip could not install what the function needs for Python {version} on {architecture} "
            f"({reason or done.returncode}); is the network there? Another --python may have wheels"
        )


def _platforms(version: str, architecture: Architecture) -> list[str]:
    """Return the kinds of wheels that run there: AWS has glibc 2.26 beside Python 3.11, and 2.34 beside newer ones."""
    machine = {"x86_64": "x86_64", "arm64": "aarch64"}[architecture]
    newest = 26 if version == "3.11" else 34
    return [f"manylinux2014_{machine}", *[f"manylinux_2_{minor}_{machine}" for minor in range(newest, 16, -1)]]


def _strip(function: Path) -> None:
    for path in sorted(function.rglob("*"), reverse=True):
        if path.is_dir() and path.name in _WASTE_FOLDERS:
            shutil.rmtree(path)
        elif path.is_file() and path.suffix in _WASTE_ENDINGS:
            path.unlink()


def _compile(function: Path) -> None:
    """Compile all modules, as a provider cannot keep what it compiles; the same modules give the same bytes."""
    command = [
        sys.executable, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash",
        f"-s{function}", "-p/var/task", str(function),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    # Files that are not meant for this version of Python stay as they are.
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=environment, check=False)


def _pack(function: Path, target: Path) -> int:
    """Zip the folder so that the same content gives the same bytes; return its size unpacked."""
    total = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(function.rglob("*")):
            if path.is_dir():
                continue
            entry = zipfile.ZipInfo(path.relative_to(function).as_posix(), _DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
            total += path.stat().st_size
    return total


def _versions(function: Path) -> tuple[str, ...]:
    """Return what was installed, as 'name version'."""
    return tuple(sorted([" ".join(path.stem.rsplit("-", 1)) for path in function.glob("*.dist-info")]))


def _move(made: Path, place: Path) -> None:
    """Put what was made in its place; other files that lie there stay."""
    place.mkdir(exist_ok=True)
    for path in made.iterdir():
        old = place / path.name
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        os.replace(path, old)
