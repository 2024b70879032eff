"""What tests and benchmarks share: servers, a proxy that logs and misbehaves, a faulty store."""
