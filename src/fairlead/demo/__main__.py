"""Command `python -m fairlead.demo`: the demo server on stdin and stdout.

With the argument `stateless`, the server supports only the stateless era; `python -m
fairlead.demo.harbour` supports only the handshake era.
"""

import sys

from fairlead import MCPServer

from . import server
from .eras import only_stateless

if __name__ == "__main__":
    if "stateless" in sys.argv[1:]:
        alone = MCPServer(server.name, interceptors=[only_stateless], rate_limit_rate=0)
        alone.mount(server)
        server = alone
    server.run()
