# SPDX-License-Identifier: Apache-2.0
"""The entry point `cordon` of lfx.sandbox_backends: a zero-argument factory of a backend as lfx's protocol has it."""

from __future__ import annotations

import os
import threading

from lfx.utils.sandbox.base import Capabilities, SandboxExecutionError, SandboxResult, SandboxUnavailableError

from . import client

REFUSALS = {"unreachable", "unavailable", "refused", "unauthenticated", "forbidden", "invalid_request", "unsupported", "busy",
            "quota_exceeded", "not_found"}
SPARE_SECONDS = 150  # a run may wait in the daemon's queue


def _settings():
    """lfx's own settings: the service's where there is one, else the environment by the same names."""
    try:
        from lfx.services.deps import get_settings_service

        return get_settings_service().settings
    except Exception:  # noqa: BLE001 - without the service the environment is what counts
        return None


def _setting(name: str, default, convert):
    found = getattr(_settings(), f"sandbox_{name}", None)
    if found is not None:
        return found
    text = os.environ.get(f"LANGFLOW_SANDBOX_{name.upper()}")
    return default if text is None else convert(text)


def _truth(text: str) -> bool:
    return text.strip().lower() in {"1", "true", "t", "yes", "y", "on"}


def _words(value) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts or [] if part.strip()]


def _backend_name() -> str:
    return os.environ.get("LANGFLOW_CORDON_BACKEND", "local").strip().lower()


class CordonBackend:
    name = "cordon"

    def __init__(self):
        self._lock = threading.Lock()
        self._capabilities: Capabilities | None = None

    def capabilities(self) -> Capabilities:
        """As the daemon told when this was made. What it did not tell is not claimed."""
        with self._lock:
            if self._capabilities is None:
                self._capabilities = self._ask()
            return self._capabilities

    def _ask(self) -> Capabilities:
        wanted = _backend_name()
        try:
            backends = client.call("GET", "/v1/backends", timeout=10)["backends"]
        except (client.DaemonError, KeyError, TypeError) as error:
            raise SandboxUnavailableError(f"cordon: {error}") from None
        for backend in backends:
            if backend["name"] == wanted:
                return self._of(backend)
        return Capabilities()

    @staticmethod
    def _of(backend: dict) -> Capabilities:
        declared = backend.get("capabilities") or {}
        measured = {row["name"]: row["verified"] for row in (backend.get("verified") or {}).get("capabilities", [])}

        def held(name: str) -> bool:
            """Declared, and not measured to be otherwise."""
            return declared.get(name) is True and measured.get(name) is not False

        closed = not declared.get("egress_exceptions") and measured.get("egress_exceptions") is not False
        return Capabilities(
            isolation=declared.get("isolation", "none"),
            supports_deny_all_egress=held("deny_all_egress") and closed,
            supports_domain_allowlist=held("domain_allowlist"),
            max_timeout_seconds=declared.get("max_timeout_s") or None,
        )

    def run(self, code: str, *, env: dict[str, str] | None = None) -> SandboxResult:
        timeout = int(_setting("timeout_seconds", 30, int))
        network = bool(_setting("allow_network", False, _truth))
        body = {
            "language": "python",
            "code": code,
            "timeout_s": timeout,
            "memory_mb": int(_setting("memory_mb", 192, int)),
            "network": network,
            "backend": _backend_name(),  # the one whose capabilities were declared
            "policy": "langflow",  # judged by the daemon, too, and with Langflow's meaning of the network
        }
        domains = _words(_setting("allowed_domains", [], _words))
        if network and domains:
            body["allowed_domains"] = domains
        if env:
            body["env"] = dict(env)
        try:
            answer = client.call("POST", "/v1/runs", body, timeout=timeout + SPARE_SECONDS)
        except client.DaemonError as error:
            kind = SandboxUnavailableError if error.kind in REFUSALS else SandboxExecutionError
            raise kind(f"cordon: {error}") from None
        return self._result(answer)

    @staticmethod
    def _result(answer: dict) -> SandboxResult:
        outcome = answer["outcome"]
        cause = outcome["cause"]
        if cause in {"refused", "unavailable"}:
            raise SandboxUnavailableError(f"cordon: {outcome['message']}")
        if cause in {"infrastructure", "cancelled"}:
            raise SandboxExecutionError(f"cordon: {outcome['message']}")
        codes = {"exited": answer["exit_code"], "signalled": answer["exit_code"], "timeout": -1, "memory": 137, "output_limit": 137}
        return SandboxResult(
            stdout=answer.get("stdout", ""),
            stderr=answer.get("stderr", "") or (outcome["message"] if cause == "output_limit" else ""),
            exit_code=codes[cause],
            execution_time_ms=int(answer["timing"]["run_ms"]),
        )

    def shutdown(self) -> None:
        """Nothing is kept open."""

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()


def create() -> CordonBackend:
    return CordonBackend()
