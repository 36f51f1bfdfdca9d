"""HTTP sessions of the handshake era: streams, resumption and storage."""
