"""The HTTP server: OpenAI's interface on top of the library and `pilotfish.serving`. See docs/server.md."""
