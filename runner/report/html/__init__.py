"""The HTML report: one page, with an index and chunks of cases beside it. It works from a file, without a network.

Everything from a run is hostile text. It travels as JSON within script files, and the page's own script puts it into the document as text
only, never as markup. The template has the few words that are there without a script; Jinja2 escapes them.

``page_data`` has what the page shows (the index, the run, chunks of cases); ``writing`` writes the files, in a new folder that replaces the
former one.

A page from a file may not fetch files, but it may load scripts; each calls ``conformance(NAME, TEXT)`` with JSON.
"""
