"""What the handlers of all providers share: the service of this process, set up from the environment at first use."""

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace

from hyperslab.errors import HyperslabError
from hyperslab.functions.answer import Answer, Refusal, refuse
from hyperslab.functions.config import function_config
from hyperslab.functions.handler import Service

__all__ = ["Deployed"]

_log = logging.getLogger("hyperslab.function")


class Deployed:
    """A function at a provider that passes on `result_bytes` of cells at most, in answers of `answer_bytes`."""

    def __init__(self, *, result_bytes: int | None = None, answer_bytes: int | None = None) -> None:
        self._result_bytes = result_bytes
        self._answer_bytes = answer_bytes
        self._guard = threading.Lock()
        self._service: Service | None = None
        self._pid = 0

    def answer(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return the answer to a request: a POST is a call, a GET asks whether the function runs."""
        if method not in ("POST", "GET"):
            return refuse(Refusal(405, "wrong-method", "a call is a POST"))
        try:
            service = self._set_up()
        except HyperslabError as error:
            # Whoever calls may be anybody: what is wrong is for those who can read the log.
            _log.error("the function is not set up: %s", error)
            return refuse(Refusal(503, "not-set-up", "the function is not set up; its log says what is missing"))
        if method == "GET":
            return Answer(200, {"content-type": "application/json"}, [b'{"status":"ok"}'])
        answer = service.answer(headers, body)
        return self._fitting(answer)

    def _fitting(self, answer: Answer) -> Answer:
        """Return the answer, or what is said instead if the provider would cut it off."""
        nbytes = sum([len(part) for part in answer.parts])
        if self._answer_bytes is None or nbytes <= self._answer_bytes:
            return answer
        told = f"the answer takes {nbytes:,} bytes, the provider passes on {self._answer_bytes:,}; ask for less at once"
        return refuse(Refusal(413, "too-large", told))

    def _set_up(self) -> Service:
        with self._guard:
            # A server may fork its workers: threads stay behind, so each has a service of its own.
            if self._service is None or self._pid != os.getpid():
                config = function_config()
                if self._result_bytes is not None and config.limits.result_bytes > self._result_bytes:
                    config = replace(config, limits=replace(config.limits, result_bytes=self._result_bytes))
                self._service, self._pid = Service(config), os.getpid()
            return self._service
