"""`python -m fairlead.demo` serves the demo on stdin and stdout."""

from . import server

if __name__ == "__main__":
    server.run()
