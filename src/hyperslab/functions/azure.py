"""The function on Azure Functions (Python, programming model v2)."""

import importlib
from typing import Any

from hyperslab.functions.deployed import Deployed

__all__ = ["main"]

# Azure passes on whatever is answered within 230 s.
_deployed = Deployed()


def main(req: Any) -> Any:
    """Answer an `azure.functions.HttpRequest`. Its settings are variables: see `function_config`."""
    answer = _deployed.answer(req.method, dict(req.headers), req.get_body() or b"")
    # Azure's runtime brings it; nobody else needs it.
    return importlib.import_module("azure.functions").HttpResponse(
        answer.body,
        status_code=answer.status,
        headers={name: value for name, value in answer.headers.items() if name != "content-length"},
        mimetype=answer.headers["content-type"],
    )
