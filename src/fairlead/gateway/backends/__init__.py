"""The servers behind a gateway, their replicas and their start-up."""
