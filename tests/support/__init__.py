"""What tests share: servers, clients, files and programs."""
