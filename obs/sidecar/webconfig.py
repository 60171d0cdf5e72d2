"""TLS and basic auth of our own port, by a file like Prometheus's ``--web.config.file``, in JSON.

The keys are those of Prometheus: ``tls_server_config`` (cert_file, key_file, client_ca_file, client_auth_type,
min_version) and ``basic_auth_users`` (name -> hash). Two things differ, because only the standard library is here: the
file is JSON (which is YAML too), and a hash is PBKDF2 and not bcrypt; ``obs sidecar --hash-password`` makes one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from obs.errors import InputError

ITERATIONS = 600_000
_HASH = re.compile(r"pbkdf2_sha256\$([0-9]{1,8})\$([0-9a-f]{16,128})\$([0-9a-f]{64})")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"NoClientCert": ssl.CERT_NONE, "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
                "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
_TLS_KEYS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")
_REMEMBERED = 64
GUESS_SECONDS = 0.5
"""Pause after a wrong password, for all guesses together."""


def hash_password(password: str, *, iterations: int = ITERATIONS, salt: bytes | None = None) -> str:
    """A salted hash for ``basic_auth_users``."""
    salt = os.urandom(16) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return f"pbkdf2_sha256${iterations}${salt.hex()}${digest.hex()}"


class Users:
    """Who may read. Equal time for a wrong password and an unknown name."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes: dict[str, tuple[int, bytes, bytes]] = {}
        for name, text in hashes.items():
            match = _HASH.fullmatch(text)
            if match is None or not 1000 <= int(match[1]) <= 10_000_000:
                raise InputError(f"basic_auth_users: {name}: is no pbkdf2_sha256 hash; make one with "
                                 "obs sidecar --hash-password (bcrypt hashes cannot be checked here)")
            self._hashes[name] = int(match[1]), bytes.fromhex(match[2]), bytes.fromhex(match[3])
        rounds = max((one[0] for one in self._hashes.values()), default=ITERATIONS)
        self._nobody = rounds, os.urandom(16), bytes(32)
        self._secret = os.urandom(32)
        self._known: dict[bytes, None] = {}
        self._one_at_a_time = threading.Lock()

    def allow(self, authorization: str | None) -> bool:
        """Whether this ``Authorization`` header opens the door."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(token.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if not colon:
            return False
        # A good pair is remembered under a key of this process, for PBKDF2 is slow on purpose.
        seen = hmac.digest(self._secret, f"{name}:{password}".encode(), "sha256")
        if seen in self._known:
            return True
        rounds, salt, wanted = self._hashes.get(name, self._nobody)
        with self._one_at_a_time:  # guesses must not take the samples' time, nor a whole core of the engine's
            digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
            right = hmac.compare_digest(digest, wanted) and name in self._hashes
            if not right:
                time.sleep(GUESS_SECONDS)
        if not right:
            return False
        if len(self._known) < _REMEMBERED:
            self._known[seen] = None
        return True


@dataclass
class WebConfig:
    """What the file says; empty when there is none."""

    users: Users | None = None
    tls: ssl.SSLContext | None = None
    _cert: tuple[str, str] = ("", "")
    _stamps: tuple[float, ...] = field(default=(), repr=False)

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, with the certificate read again when its files changed."""
        if self.tls is not None:
            try:
                stamps = tuple(os.stat(path).st_mtime for path in self._cert)
                if stamps != self._stamps:
                    self.tls.load_cert_chain(*self._cert)
                    self._stamps = stamps
            except (OSError, ssl.SSLError):
                pass  # half-replaced files: the old certificate goes on
        return self.tls


def read(path: Path) -> WebConfig:
    """Read the file; InputError, which never shows a hash, when it is wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is no JSON ({error}); write Prometheus's web config as JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be an object")
    unknown = content.keys() - {"tls_server_config", "basic_auth_users"}
    if unknown:
        raise InputError(f"{path}: unknown key {sorted(unknown)[0]!r}; known are tls_server_config, basic_auth_users")
    config = WebConfig()
    users = content.get("basic_auth_users") or {}
    if users:
        if not isinstance(users, dict) or not all(isinstance(text, str) for text in users.values()):
            raise InputError(f"{path}: basic_auth_users must map names to hashes")
        try:
            config.users = Users(users)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    if content.get("tls_server_config"):
        _tls(path, content["tls_server_config"], config)
    return config


def _tls(path: Path, given: Any, config: WebConfig) -> None:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InputError(f"{path}: tls_server_config must map {', '.join(_TLS_KEYS)} to text")
    unknown = given.keys() - set(_TLS_KEYS)
    if unknown:
        raise InputError(f"{path}: tls_server_config: unknown key {sorted(unknown)[0]!r}; known are "
                         f"{', '.join(_TLS_KEYS)}")
    files = {key: str(path.parent / given[key]) for key in ("cert_file", "key_file", "client_ca_file") if key in given}
    if not {"cert_file", "key_file"} <= files.keys():
        raise InputError(f"{path}: tls_server_config needs cert_file and key_file")
    version = given.get("min_version", "TLS12")
    auth = given.get("client_auth_type", "RequireAndVerifyClientCert" if "client_ca_file" in files else "NoClientCert")
    if version not in _VERSIONS or auth not in _CLIENT_AUTH:
        raise InputError(f"{path}: min_version is one of {', '.join(_VERSIONS)}; client_auth_type one of "
                         f"{', '.join(_CLIENT_AUTH)}")
    if auth != "NoClientCert" and "client_ca_file" not in files:
        raise InputError(f"{path}: client_auth_type {auth} needs client_ca_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version]
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{path}: the certificate, key or CA cannot be used: {error.strerror or error}") from None
    context.verify_mode = _CLIENT_AUTH[auth]
    config.tls = context
    config._cert = files["cert_file"], files["key_file"]
    config._stamps = tuple(os.stat(one).st_mtime for one in config._cert)
