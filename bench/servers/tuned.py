"""A Python server or relay of a peer with the settings that make it faster: SCRIPT ARGUMENTS...

It runs on uvloop, writes no log below warnings, and uvicorn finds httptools (both on PYTHONPATH).
"""

import asyncio
import logging
import runpy
import sys

import uvloop

if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    logging.disable(logging.INFO)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
