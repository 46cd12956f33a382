"""A language server for specs. It calls the checks of ``validate`` on what the editor shows."""
