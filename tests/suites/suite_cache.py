"""Sources of the suites and an environment to run them, cached outside the repository."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CACHE = Path(os.environ.get("FAIRLEAD_CACHE") or REPOSITORY / ".cache") / "suites"


class Unavailable(Exception):
    """Raised if a package cannot be installed, probably because the network is not available."""


def source(package: str, version: str) -> Path:
    """Return the unpacked source distribution of a package.

    Raises:
        Unavailable: The distribution cannot be downloaded, or has another version.
    """
    home = CACHE / "sources" / f"{package}-{version}"
    if not home.exists():
        downloads = CACHE / "downloads"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        pip += ["--quiet", "--no-deps", "--no-binary", package, "--dest", str(downloads)]
        _run([*pip, f"{package}=={version}"])
        with tarfile.open(downloads / f"{package}-{version}.tar.gz") as archive:
            archive.extractall(home.parent, filter="data")
    about = (home / "PKG-INFO").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    if not {f"Name: {package}", f"Version: {version}"} <= set(about):
        raise Unavailable(f"{home} is not {package} {version}; remove it")
    return home


def environment() -> Path:
    """Return the interpreter of an environment with both SDKs, their test tools and Fairlead.

    Raises:
        Unavailable: The environment cannot be installed.
    """
    home = CACHE / "environment"
    wanted = [REQUIREMENTS.read_text(encoding="utf-8"), str(REPOSITORY), sys.version]
    wanted.append((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    done = home / "installed.json"  # written last, so that it marks a complete installation
    python = home / "bin" / "python"
    if not done.exists() or json.loads(done.read_text(encoding="utf-8")) != wanted:
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, "--editable", str(REPOSITORY), "--requirement", str(REQUIREMENTS)])
        done.write_text(json.dumps(wanted), encoding="utf-8")
    return python


def _run(command: list[str]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=600, check=True)
    except subprocess.CalledProcessError as exc:
        raise Unavailable(f"{' '.join(command[:5])} …: {exc.stderr[-500:]}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(str(exc)) from exc
