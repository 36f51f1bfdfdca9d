"""Running handlers: coroutines, worker threads, errors."""
