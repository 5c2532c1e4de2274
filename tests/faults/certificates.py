"""Certificates for servers that speak TLS: made for the test, signed by themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.missing import cannot


def certify(folder: Path, name: str, valid_for: str = "DNS:localhost") -> tuple[Path, Path]:
    """A certificate and its key, for whoever owns the folder."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", f"/CN={valid_for.partition(':')[2]}", "-addext", f"subjectAltName={valid_for}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = [need_openssl(), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True)
    owner = folder.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    key.chmod(0o600)
    return certificate, key


def need_openssl() -> str:
    """Skips with one clear line where there is no openssl; in CI that is a failure."""
    found = shutil.which("openssl")
    if found is None:
        cannot("openssl is not installed: apt-get install openssl")
    return found
