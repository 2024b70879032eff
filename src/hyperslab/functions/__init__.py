"""The function beside the data: it reads chunks there, and sends back only the cells asked for.

`core` does the work; `handler` checks and answers requests; the other modules are thin: one for each place that
functions run in.
"""

from hyperslab.functions.answer import Answer
from hyperslab.functions.config import FunctionConfig, Root, function_config, keys_of_file
from hyperslab.functions.handler import Service, handle

__all__ = ["Answer", "FunctionConfig", "Root", "Service", "function_config", "handle", "keys_of_file"]
