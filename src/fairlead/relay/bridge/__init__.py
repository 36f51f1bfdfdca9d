"""Translation of requests, results and errors between the eras."""
