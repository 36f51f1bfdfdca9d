"""`python -m fairlead.demo` serves the demo on stdin and stdout.

`stateless` behind it: only in that era. `python -m fairlead.demo.harbour` is one of the other.
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
